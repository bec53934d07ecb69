module tb;
  reg clk = 0, rst = 1, en = 0; reg [3:0] a = 0; wire [3:0] y; integer i;
  top dut(.clk(clk), .rst(rst), .en(en), .a(a), .y(y));
  initial begin
    for (i = 0; i < 60; i = i + 1) begin
      rst = i < 2 || i == 31; en = i % 3 != 1; a = i * 7 + i / 9;
      #1 clk = 1; #1 $display("@SAMPLE %b %b %b | %b", rst, en, a, y); #1 clk = 0;
    end
    $finish;
  end
endmodule
