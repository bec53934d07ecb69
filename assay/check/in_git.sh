# Prints an object that neither HEAD nor the index leads to, in packs and alternates too, but no
# tag; else those files of standard input of which git has the content. Fails where a program does:
# find ends with 1 for a folder that may not be read, fsck below 126 for faults of a repository.
find . -type d -name objects -prune | while IFS= read -r objects; do
    export GIT_DIR="${objects%objects}"
    git rev-parse 2> /dev/null || continue
    git fsck --unreachable --cache --connectivity-only HEAD
    [ $? -lt 126 ] || exit 1
done | grep -E --max-count=1 '^unreachable (commit|tree|blob)'
case "${PIPESTATUS[*]}" in
    *' 0') exit 0 ;;
    [01]' 0 1') ;;
    *) exit 1 ;;
esac
while IFS= read -r path; do
    [ -s "$path" ] && git cat-file -e "$(git hash-object -- "$path")" && echo "repaired $path"
done
exit 0
