"""Java, compiled with javac and run from an archive."""

from __future__ import annotations

from assay.languages import Language, language

BUILD = """
name=$(sed -nE 's/^ *public +(final +)?class +([A-Za-z_0-9]+).*/\\2/p' Main.java | head -n 1)
name=${name:-Main}
[ $name = Main ] || mv Main.java $name.java
small="-J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1"
javac $small -nowarn -d classes *.java || exit 1
[ ! -f AssayDriver.java ] || name=AssayDriver
jar $small -c -f program -e $name -C classes .
"""


@language
def java() -> Language:
    """Java, in a public class of any name, else in a class Main."""
    return Language(
        title="Java", source="Main.java", package="default-jdk-headless",
        beside="AssayDriver.java", driver="AssayDriver.java",
        compile=("/bin/sh", "-c", BUILD), runtime_mb=768,
        run=("java", "-XX:+UseSerialGC", "-Xss64m", "-jar", "program"),
        hello='public class Main { public static void main(String[] a) '
              '{ System.out.println("hello"); } }',
        lazy={"empty": "class Main { public static void main(String[] a) {} }",
              "echo": "class Main { public static void main(String[] a) throws Exception "
                      "{ System.in.transferTo(System.out); } }"},
    )  # fmt: skip
