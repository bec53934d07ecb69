-2 "STARTED";
@[system;"l program.q";{-2 "'",x;exit 1}];
exit 0
