"""The parts of the tests are all of them together, and each test is in one."""

from __future__ import annotations

from tests.parts import part_of


def test_the_cases_of_a_function_are_in_one_part_and_functions_in_all_parts() -> None:
    names = [f"tests/test_a.py::test_{number}" for number in range(200)]
    assert {part_of(name, 8) for name in names} == set(range(1, 9))
    assert all(part_of(f"{name}[a-b]", 8) == part_of(name, 8) for name in names)
    assert {part_of(name, 1) for name in names} == {1}
