# Compiles Main.java, whatever its public class is called, with the driver if that is there.
name=$(sed -nE 's/^ *public +(final +)?class +([A-Za-z_0-9]+).*/\2/p' Main.java | head -n 1)
name=${name:-Main}
[ $name = Main ] || mv Main.java $name.java
# Without egd, jar and what draws random numbers wait 8 seconds for a seed.
small="-J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1 -J-Djava.security.egd=file:/dev/urandom"
javac $small -nowarn -d classes *.java || exit 1
[ ! -f AssayDriver.java ] || name=AssayDriver
jar $small -c -f program -e $name -C classes .
