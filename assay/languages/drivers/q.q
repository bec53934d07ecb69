PROGRAM

/ Each call takes a list of arguments; its answer becomes a line of JSON, with every digit.
\d .
\P 0
.assay.answers:();
.assay.call:{.assay.answers,:enlist @[{"[",(.j.j FUNCTION . x),"]"};x;{.j.j(enlist`raised)!enlist x}]};
.assay.end:{`:answers 0: .assay.answers};
