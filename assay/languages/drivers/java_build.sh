# Compiles Main.java, whatever its public type is called, with the driver if that is there.
name=$(sed -nE 's/^ *public +(final +)?class +([A-Za-z_0-9]+).*/\2/p' Main.java | head -n 1)
name=${name:-Main}
[ $name = Main ] || mv Main.java $name.java
# Without egd, jar and what draws random numbers wait 8 seconds for a seed.
small="-J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1 -J-Djava.security.egd=file:/dev/urandom"
if ! javac $small -nowarn -d classes *.java 2> errors; then
  public=$(sed -nE 's/.* is public, should be declared in a file named (.+)\.java$/\1/p' errors | head -n 1)
  [ -z "$public" ] || mv "$name.java" "$public.java"
  if [ -z "$public" ] || ! javac $small -nowarn -d classes *.java 2> errors; then
    cat errors >&2
    exit 1
  fi
  name=$public
fi
# The main class: the driver, the public one, Main, or the first that can be started.
cd classes
started=$(find . -name '*.class' ! -name '*$*' -exec grep -lF '([Ljava/lang/String;)V' {} + | xargs -r grep -lF main | sort)
for wanted in AssayDriver "$name" Main '.*'; do
  main=$(echo "$started" | grep -E "/$wanted\.class$" | head -n 1)
  [ -z "$main" ] || break
done
main=$(echo "${main:-./$name.class}" | sed 's/^\.\///; s/\.class$//; s/\//./g')
cd ..
jar $small -c -f program -e "$main" -C classes .
