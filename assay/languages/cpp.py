"""C++, compiled with g++."""

from __future__ import annotations

from pathlib import Path

from assay.languages import Language, language

LIBRARIES = ["-lcrypto"] if any(Path("/usr/lib").glob("*/libcrypto.so")) else []


def set_aside(language: Language, program: str) -> str:
    """The program with another name for its main function, whatever its type."""
    return f"#define main program_main\n#line 1\n{program}\n#undef main\n#undef int\n"


@language
def cpp() -> Language:
    """C++17, compiled with g++."""
    return Language(
        title="C++", source="main.cpp", fences=("c++", "cc", "cxx"), package="g++",
        compile=("g++", "-O2", "-std=gnu++17", "-w", "main.cpp", "-o", "program",
                 "-Wl,--as-needed", *LIBRARIES),
        run=("./program",), driver="cpp.cpp", set_aside=set_aside,
        hello='#include <iostream>\nint main() { std::cout << "hello\\n"; }',
        lazy={"empty": "int main() {}",
              "echo": "#include <iostream>\nint main() { std::cout << std::cin.rdbuf(); }"},
    )  # fmt: skip
