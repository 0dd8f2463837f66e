# shellcheck shell=sh
# glob.sh BYTES DIRECTORY NAME: paths (`./...`, each ended by a NUL) of the regular files below it whose last part
# matches the pattern NAME, and of the links to such files, cut after BYTES. What find says goes to standard error.
enter "$2"
bytes=$1
if at_top; then
	set -- '(' -path ./proc -o -path ./sys -o -path ./dev ')' -prune -o -name "$3"
else
	set -- -name "$3"
fi
find . "$@" '(' -type f -o -type l -exec test -f '{}' ';' ')' -print0 | head -c "$bytes"
exit 0
