"""C++17, compiled with g++."""

from __future__ import annotations

from pathlib import Path

from assay.languages import Language, language

LIBRARIES = ["-lcrypto"] if any(Path("/usr/lib").glob("*/libcrypto.so")) else []


language("cpp", Language(
    title="C++", source="main.cpp", fences=("c++", "cc", "cxx"), package="g++",
    compile=("g++", "-O2", "-std=gnu++17", "-w", "main.cpp", "-o", "program",
             "-Wl,--as-needed", *LIBRARIES),
    run=("./program",), driver="cpp.cpp", owner="Solution::",
    hello='#include <iostream>\nint main() { std::cout << "hello\\n"; }',
    lazy={"empty": "int main() {}",
          "echo": "#include <iostream>\nint main() { std::cout << std::cin.rdbuf(); }"},
))  # fmt: skip
