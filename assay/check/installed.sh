# Prints the first path that matches a pattern, in the work folder or folders: $1, $2 and more. What
# `/` of a box has beside its image is left out, and so is what is empty, as a box's covers are. Fails where find does, which prints `.` first if it
# knows its options, and ends with 1 for a folder that may not be read.
find . "${@:2}" -regextype posix-extended -path . -print -o \
    -regex '/(proc|sys|dev|\.tree)' -prune -o -regex "$1" ! -empty ! -size 0 -print -quit | {
    IFS= read -r first || exit 1
    IFS= read -r place && echo "$place"
    exit 0
}
[[ ${PIPESTATUS[*]} == [01]' 0' ]]
