# Compiles Main.java, whatever its public class is called, with the driver if that is there.
name=$(sed -nE 's/^ *public +(final +)?class +([A-Za-z_0-9]+).*/\2/p' Main.java | head -n 1)
name=${name:-Main}
[ $name = Main ] || mv Main.java $name.java
small="-J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1"
javac $small -nowarn -d classes *.java || exit 1
[ ! -f AssayDriver.java ] || name=AssayDriver
jar $small -c -f program -e $name -C classes .
