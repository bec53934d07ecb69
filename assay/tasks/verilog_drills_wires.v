module tb;
  reg [3:0] a, b; wire [3:0] y; integer i;
  top dut(.a(a), .b(b), .y(y));
  initial begin
    for (i = 0; i < 256; i = i + 3) begin
      {a, b} = i; #1 $display("@SAMPLE %b %b | %b", a, b, y);
    end
    $finish;
  end
endmodule
