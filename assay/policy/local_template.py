"""Whether a chat template shows each message by itself: then what was added to a conversation can
be rendered beside the last messages alone, and costs the same in the first turn and the 80th.
"""

from functools import lru_cache
from typing import Any

CACHED = 16
"""Templates whose answer is kept, by their text: some 100 KB each at most, cleared never."""
NEIGHBOURS = {"first", "last", "previtem", "nextitem"}
"""What of Jinja's `loop` depends on the neighbours of a message alone."""
REFUSED = (
    "AssignBlock", "Block", "Break", "CallBlock", "Extends", "FilterBlock", "FromImport", "Import",
    "Include", "NSRef",
)  # fmt: skip
"""Nodes that may carry something from one message to another, change the text of several at once,
or read other templates."""
STATEFUL = {"cycler", "joiner", "namespace"}
"""Jinja's globals that remember something."""
ELSEWHERE = "-"
"""Stands for a loop over something else than the messages."""


@lru_cache(CACHED)
def is_local(template: str) -> bool:
    """Whether a template has one loop over the messages, in which the text of a message depends on
    nothing but the message, the one before it, the one behind it, whether it is the first or the
    last, and what does not change in a conversation: the first message, the tools and other
    arguments. A template that cannot be read so is not local.
    """
    from jinja2 import Environment, TemplateSyntaxError, nodes

    try:
        tree = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(template)
    except (TemplateSyntaxError, RecursionError):
        return False
    refused = [kind for name in REFUSED if issubclass(kind := getattr(nodes, name), nodes.Node)]
    if any(tree.find(kind) for kind in refused):
        return False
    if any(name.name in STATEFUL for name in tree.find_all(nodes.Name)):
        return False
    reader = _Reader(nodes)
    return reader.is_local(tree) and reader.loops == 1


class _Reader:
    """Walks a template's tree, and refuses uses of the messages that are not local."""

    def __init__(self, nodes: Any) -> None:
        self.nodes = nodes
        self.names = {"messages"}
        """Of variables that are the messages, or all but the first."""
        self.loops = 0
        """Over the messages."""

    def is_local(self, node: Any, loop: str = "") -> bool:
        """Whether all below a node is local; `loop` names the list whose loop it stands in."""
        nodes, in_loop = self.nodes, loop not in ("", ELSEWHERE)
        match node:
            case nodes.Assign(target=nodes.Name(name=name)) if self._is_list(node.node):
                self.names.add(name)
                return not loop
            case nodes.For():
                return self._is_local_loop(node, loop)
            case nodes.Macro():  # it may be called more than once
                return all(self.is_local(part, ELSEWHERE) for part in node.iter_child_nodes())
            case nodes.Getitem(node=nodes.Name(name="messages"), arg=nodes.Const(value=0)):
                return True
            case nodes.Getitem(node=nodes.Name(name="messages")) if loop == "messages":
                return self._is_neighbour(node.arg)
            case nodes.Compare(ops=[nodes.Operand(expr=nodes.Const(value=0))]) if (
                in_loop and self._is_place(node.expr)
            ):
                return node.ops[0].op in ("eq", "ne", "gt")
            case nodes.Getattr(node=nodes.Name(name="loop"), attr=attr) if in_loop:
                return attr in NEIGHBOURS
            case nodes.Name(name=name):
                return name not in self.names and not (in_loop and name == "loop")
        return all(self.is_local(child, loop) for child in node.iter_child_nodes())

    def _is_local_loop(self, node: Any, loop: str) -> bool:
        inside = ELSEWHERE
        if self._is_list(node.iter):
            self.loops += 1
            inside = getattr(node.iter, "name", "the rest")
            if loop or node.test or node.recursive:
                return False
        elif not self.is_local(node.iter, loop):
            return False
        parts = [node.target, *node.body, *node.else_, *filter(None, [node.test])]
        return all(self.is_local(part, inside) for part in parts)

    def _is_list(self, node: Any) -> bool:
        """Whether an expression is the messages, or all but the first."""
        nodes = self.nodes
        match node:
            case nodes.Name(name=name):
                return name in self.names
            case nodes.Getitem(
                node=nodes.Name(name="messages"),
                arg=nodes.Slice(start=nodes.Const(value=1), stop=None, step=None),
            ):
                return True
        return False

    def _is_place(self, node: Any) -> bool:
        return isinstance(node, self.nodes.Getattr) and (node.attr, node.node) == (
            "index0",
            self.nodes.Name("loop", "load"),
        )

    def _is_neighbour(self, node: Any) -> bool:
        """Whether an index is that of the message before or behind."""
        nodes = self.nodes
        match node:
            case nodes.Add(right=nodes.Const(value=1)) | nodes.Sub(right=nodes.Const(value=1)):
                return self._is_place(node.left)
        return False
