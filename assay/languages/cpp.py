"""C++, compiled with g++ as its newest standard, or else as C++17: a newer one refuses a few old
programs, such as those with names of their own that it has in `std`.
"""

from __future__ import annotations

from pathlib import Path

from assay.languages import FUNCTION, Language, language
from assay.languages import TEXTS as COMMON

TEXTS = rf'\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{{0,16}})\((?s:.*?)(?:\)(?P=mark)"|\Z)|{COMMON}'
LAMBDA = r"\b(?:auto|function\s*<[^;={}]{1,199}>)\s*NAME\s*=\s*\["
LIBRARIES = ["-lcrypto"] if any(Path("/usr/lib").glob("*/libcrypto.so")) else []


language("cpp", Language(
    title="C++", source="main.cpp", fences=("c++", "cc", "cxx"), package="g++",
    compile=("g++", "-O2", "-std=STANDARD", "-w", "main.cpp", "-o", "program",
             "-Wl,--as-needed", *LIBRARIES),
    standards=("gnu++26", "gnu++23", "gnu++20", "gnu++17"), dialect="C++{standard}",
    reserves=True, crash_status=4, run=("./program",), driver="cpp.cpp", owner="Solution::",
    texts=TEXTS, definition=f"{FUNCTION}|{LAMBDA}",
    hello='#include <iostream>\nint main() { std::cout << "hello\\n"; }',
    lazy={"empty": "int main() {}",
          "echo": "#include <iostream>\nint main() { std::cout << std::cin.rdbuf(); }"},
))  # fmt: skip
