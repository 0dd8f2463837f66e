# shellcheck shell=sh
# Writing files in a box, for files.py; goes with files.sh.
#
# What is to be written comes as KIND and DATA: `text` and a printf format (which can hold a NUL, as a word cannot), or
# `file` and the path where copy_in has staged it.

# dfb_write PATH NAME SPARE KIND DATA SIZE: replace a file, through a file NAME beside it. SPARE is a path on the root
# disk. A staged file is gone afterwards.
dfb_write() {
	dfb_whole "$4" "$5" "$6" && dfb_resolve "$1" && dfb_writable "$dfb_path" &&
		dfb_replace "$dfb_path" "${dfb_path%/*}/$2" "$3" "$4" "$5"
	dfb_unstage "$4" "$5"
}

# dfb_append PATH KIND DATA SIZE: add to the end of a file, making it if there is none. Otherwise as dfb_write.
dfb_append() {
	dfb_whole "$2" "$3" "$4" && dfb_resolve "$1" && dfb_writable "$dfb_path" && dfb_extend "$dfb_path" "$2" "$3"
	dfb_unstage "$2" "$3"
}

dfb_unstage() {
	[ "$1" = text ] || rm -f "$2"
}

# dfb_failed TEXT: answer that an operation failed, in a tool's words.
dfb_failed() {
	reply error
	part "$1"
}

# dfb_whole KIND DATA SIZE: whether a staged file came whole, or answer that it did not.
dfb_whole() {
	[ "$1" = text ] && return
	dfb_size "$2" || return
	[ "$dfb_bytes" = "$3" ] && return
	dfb_failed 'No space left on device'
	return 1
}

# dfb_resolve PATH: set dfb_path to the file that a symbolic link leads to, there or not, or answer why not. (busybox has
# a `readlink -f` that finds only what is there.)
dfb_resolve() {
	dfb_path=$1 dfb_hops=0
	while [ -L "$dfb_path" ]; do
		dfb_hops=$((dfb_hops + 1))
		if [ $dfb_hops -gt 40 ]; then
			dfb_failed 'Too many levels of symbolic links'
			return 1
		fi
		dfb_link=$(readlink "$dfb_path" && echo .)
		case $dfb_link in
		/*) dfb_path=${dfb_link%"$dfb_nl".} ;;
		?*"$dfb_nl".) dfb_path=${dfb_path%/*}/${dfb_link%"$dfb_nl".} ;;
		*)
			dfb_why "$1" 'Input/output error'
			return 1
			;;
		esac
	done
}

# dfb_writable PATH: whether one may write there, making missing parents, or answer why not.
dfb_writable() {
	if [ -e "$1" ]; then
		dfb_regular "$1" || return
		[ -w "$1" ] && return
		dfb_text=$( (: >>"$1") 2>&1) && return
		dfb_why "$1" "$dfb_text"
		return 1
	fi
	[ -d "${1%/*}/" ] && return
	if [ -e "${1%/*}" ]; then
		dfb_failed 'Not a directory'
		return 1
	fi
	dfb_text=$(mkdir -p "${1%/*}" 2>&1) && return
	dfb_failed "$dfb_text"
	return 1
}

# dfb_emit KIND DATA: print what is to be written.
dfb_emit() {
	if [ "$1" = text ]; then
		# shellcheck disable=SC2059 # it is a format
		printf "$2"
	else
		cat "$2"
	fi
}

# dfb_say KIND DATA: dfb_emit for want of a message: cat tells why a write fails, the shell's own printf does not.
dfb_say() {
	if [ "$1" = text ]; then
		dfb_emit "$1" "$2" 2>/dev/null | cat
	else
		cat "$2"
	fi
}

# dfb_replace PATH TMP SPARE KIND DATA
dfb_replace() {
	dfb_letters=-rw-r--r-- dfb_owner='' dfb_moved=''
	if [ -e "$1" ]; then
		dfb_spare=${3%/*}
		[ ! -w /dev/shm ] || dfb_spare=/dev/shm
		if [ "$4" = text ] && dfb_swap "$1" "$dfb_spare/dfb-swap.$$" "$5"; then
			dfb_flush "$1" && reply ok
			return
		fi
		dfb_size "$1" || return
	fi
	# Nobody is to read in the new file what the old one kept to itself.
	[ "$dfb_letters" = -rw-r--r-- ] || umask 077
	dfb_make "$2" "$4" "$5" && dfb_dress "$2" "$1" && dfb_text=$(mv -f "$2" "$1" 2>&1)
	dfb_status=$?
	umask 022
	if [ $dfb_status = 0 ]; then
		dfb_flush "$1" && reply ok
		return
	fi
	case $dfb_text in
	*'ermission denied' | *'peration not permitted' | *'esource busy')
		# Its directory is not ours, or it is a mount point: the file itself can be written all the same.
		if [ -e "$1" ]; then
			if [ "$dfb_moved" = '' ]; then
				dfb_rewrite "$1" "$3" "$4" "$5"
			else
				dfb_rewrite "$1" "$3" file "$2"
			fi
			rm -f "$2" "$3"
			return
		fi
		;;
	esac
	rm -f "$2"
	dfb_failed "$dfb_text"
}

# dfb_swap PATH SPARE FORMAT: replace a file of ours at the price of one process: GNU's `sed -i` makes the new file, gives
# it the old one's mode, and renames it. Where it cannot, nothing has changed. (busybox's sed changes NULs.) SPARE is in
# memory where it can be: on the disk it would be part of what the flush has to wait for.
dfb_swap() {
	# shellcheck disable=SC3066,SC3067 # -O and -G: not in POSIX, but in dash, bash and busybox
	[ -s "$1" ] && [ -O "$1" ] && [ -G "$1" ] && dfb_has_gnu_sed && dfb_emit text "$3" >"$2" &&
		sed -n -i -e "1{r $2" -e 'q}' "$1"
}

dfb_sed=
dfb_has_gnu_sed() {
	[ "$dfb_sed" != '' ] || dfb_sed=$(sed --version 2>&1)
	case $dfb_sed in 'sed (GNU sed) '*) return 0 ;; esac
	return 1
}

# dfb_make TMP KIND DATA: make the new file. A staged file that is ours is moved, not copied.
dfb_make() {
	# shellcheck disable=SC3066,SC3067 # -O and -G: not in POSIX, but in dash, bash and busybox
	if [ "$2" = file ] && [ -O "$3" ] && [ -G "$3" ]; then
		dfb_moved=yes
		dfb_text=$(mv -f "$3" "$1" 2>&1)
	elif dfb_emit "$2" "$3" >"$1"; then
		:
	else
		dfb_text=$(dfb_say "$2" "$3" 2>&1 >"$1")
	fi
}

# dfb_dress TMP PATH: give TMP the owner and the mode that PATH has (dfb_owner and dfb_letters), or would get.
dfb_dress() {
	# shellcheck disable=SC3066,SC3067 # -O and -G: not in POSIX, but in dash, bash and busybox
	if [ "$dfb_owner" != '' ] && ! { [ -O "$2" ] && [ -G "$2" ] && [ -G "$1" ]; }; then
		dfb_text=$(chown "$dfb_owner" "$1" 2>&1) || return
	fi
	# What copy_in has staged has the mode it had on the host: this one.
	[ "$dfb_letters" = -rw-r--r-- ] && return
	dfb_octal "${dfb_letters#?}"
	dfb_text=$(chmod "$dfb_mode" "$1" 2>&1)
}

# dfb_octal LETTERS: set dfb_mode to the mode that `ls -l` writes as LETTERS.
dfb_octal() {
	dfb_mode=0 dfb_bit=256 dfb_rest=$1
	while [ $dfb_bit != 0 ]; do
		case $dfb_rest in
		[rwxst]*) dfb_mode=$((dfb_mode + dfb_bit)) ;;
		esac
		case $dfb_bit$dfb_rest in
		64[sS]*) dfb_mode=$((dfb_mode + 2048)) ;;
		8[sS]*) dfb_mode=$((dfb_mode + 1024)) ;;
		1[tT]*) dfb_mode=$((dfb_mode + 512)) ;;
		esac
		dfb_rest=${dfb_rest#?} dfb_bit=$((dfb_bit / 2))
	done
	dfb_mode=$(printf %o $dfb_mode)
}

# dfb_rewrite PATH SPARE KIND DATA: write into a file as it is. If that fails, it gets its old text back, from SPARE.
dfb_rewrite() {
	dfb_text=$(cat "$1" 2>&1 >"$2") || {
		dfb_failed "$dfb_text"
		return
	}
	dfb_text=$(dfb_say "$3" "$4" 2>&1 >"$1") || {
		cat "$2" >"$1"
		dfb_failed "$dfb_text"
		return
	}
	dfb_flush "$1" && reply ok
}

# dfb_extend PATH KIND DATA: append. A part that was written of what cannot be written whole is cut off again.
dfb_extend() {
	dfb_bytes=none
	if [ -e "$1" ]; then
		dfb_size "$1" || return
	fi
	if ! dfb_emit "$2" "$3" >>"$1"; then
		dfb_cut "$1" "$dfb_bytes"
		dfb_text=$(dfb_say "$2" "$3" 2>&1 >>"$1") || {
			dfb_cut "$1" "$dfb_bytes"
			dfb_failed "$dfb_text"
			return
		}
	fi
	dfb_flush "$1" && reply ok
}

# dfb_cut PATH SIZE
dfb_cut() {
	if [ "$2" = none ]; then
		rm -f "$1"
	else
		dd if=/dev/null of="$1" bs=1 seek="$2" 2>/dev/null
	fi
}

# dfb_flush PATH: have a file on the disk. fsync(2) of a file that was just renamed commits its new name too (ext4).
dfb_flush() {
	if ! [ -r "$1" ]; then
		sync
		return
	fi
	dfb_text=$(sync "$1" 2>&1) && return
	dfb_failed "$dfb_text"
	return 1
}
