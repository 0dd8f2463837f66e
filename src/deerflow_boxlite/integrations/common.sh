# shellcheck shell=sh
# What the other scripts of this directory share; deepagents.py puts it in front of each of them.
#
# They run as a command of the box, by whatever shell that has, with their arguments set by `set --`. Paths that come are
# absolute. A failure is said as `error CODE` on the only line of standard output, CODE as in the deepagents protocol.

# What a profile may have set.
set +euf
# Bytes, not characters: names and texts need not be valid in any locale.
LC_ALL=C
export LC_ALL

# fail CODE
fail() {
	printf 'error %s\n' "$1"
	exit 0
}

# fail_missing PATH CODE: for a path that `test -e` does not see: CODE, unless a directory above it keeps us out.
fail_missing() {
	above=$1
	while [ "${above%/*}" != "$above" ]; do
		above=${above%/*}
		if [ -d "${above:-/}" ]; then
			[ -x "${above:-/}" ] || fail permission_denied
			break
		fi
	done
	fail "$2"
}

# enter DIRECTORY: go there, able to list it.
enter() {
	[ -e "$1" ] || fail_missing "$1" path_not_found
	[ -d "$1" ] || fail not_a_directory
	[ -r "$1" ] || fail permission_denied
	cd "$1/" 2>/dev/null || fail permission_denied
}

# at_top: whether here is where the kernel's own file systems are, in which no file is anybody's.
at_top() {
	[ "$PWD" = / ] || [ "$PWD" = // ]
}
