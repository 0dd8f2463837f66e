# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154 # variables shared with loop.sh and boot.sh; dfb_collector: collect.sh, as text
# Running commands: what a command channel (commands.py) has beside loop.sh.
#
# Descriptors: 5 and 6 the pipes of the commands' standard output and error (open for reading too, so that they always
# have a reader), 8 and 9 the files they are collected in (shared with the collectors: /proc/self/fdinfo tells how much
# they have written), 7 for reading these. A command gets none of them.
#
# Forking and executing cost more than anything else here (40 ms for a `cat` on an emulated Debian), so a short command
# with little output costs one fork. External programs are named through `\command`, past aliases and functions of a
# profile.

# Up to so many bytes of a stream go back in the reply, read by `read`, byte by byte: beyond, the host copies the file.
dfb_inline=4096

# dfb_setup STATE NAME: make what the commands of this channel are collected with, in the directory STATE/NAME.
dfb_setup() {
	dfb_state=$1 dfb_name=$2 dfb_turn=0 dfb_dir='' dfb_due='' dfb_known=' '
	dfb_setsid=
	\command -v setsid >/dev/null && dfb_setsid=setsid
	dfb_sweep
	dfb_prepare
	reply "$$"
}

# Remove what channels that are no more have left.
dfb_sweep() {
	for dfb_d in "$dfb_state"/*.*.* /dev/shm/dfb-*.*.*; do
		dfb_pid=${dfb_d##*.}
		[ ! -d "$dfb_d" ] || [ -d "/proc/$dfb_pid" ] || \command rm -rf "$dfb_d"
	done
}

# Make pipes, files and collectors, on the root disk, or where that is full in memory. Sets dfb_dir; empty: nowhere.
dfb_prepare() {
	dfb_turn=$((dfb_turn + 1))
	dfb_full=
	dfb_make "$dfb_state/$dfb_name.$dfb_turn.$$" && return
	dfb_full=full
	dfb_make "/dev/shm/dfb-$dfb_name.$dfb_turn.$$" && return
	dfb_dir=
}

dfb_make() {
	dfb_dir=$1
	if \command mkdir -p -m 700 "$dfb_dir" && \command mkfifo "$dfb_dir/out.pipe" "$dfb_dir/err.pipe" &&
		dfb_roomy "$dfb_dir/out" && printf '\n' >"$dfb_dir/err"; then
		exec 5<>"$dfb_dir/out.pipe" 6<>"$dfb_dir/err.pipe" 8>>"$dfb_dir/out" 9>>"$dfb_dir/err"
		dfb_collectors="$(dfb_collect out 8 7<"$dfb_dir/out.pipe") $(dfb_collect err 9 7<"$dfb_dir/err.pipe")"
		dfb_held
		dfb_collecting && dfb_reset && return
		dfb_retire
	fi
	\command rm -rf "$dfb_dir"
	return 1
}

# dfb_roomy FILE: whether there is room for some output where FILE is.
dfb_roomy() {
	printf '%65536s\n' '' >"$1"
}

# Start a collector and print its process id. In a substitution, so that it is no job of ours: `wait` and `$!` in a
# command know nothing of it. In a session of its own where `setsid` exists: a command may do `kill 0`.
dfb_collect() {
	$dfb_setsid sh -c "$dfb_collector" sh "$dfb_dir/$1.ended" </dev/null >&"$2" 4>&- 5>&- 6>&- 8>&- 9>&- &
	echo $!
}

# Wait until the collectors collect: before, a command that does `kill 0` would end them.
dfb_collecting() {
	printf '\n' >&5
	printf '\n' >&6
	dfb_polls=0
	until dfb_position 8 && [ "$dfb_at" -gt 0 ] && dfb_position 9 && [ "$dfb_at" -gt 0 ]; do
		[ "$dfb_polls" -lt 500 ] || return
		dfb_pause
	done
}

# Empty the files, and put a byte in each: a file with a byte in it has its first block, and little output then fits
# even when the disk fills. Fails when it is full already.
dfb_reset() {
	printf '' >"$dfb_dir/out" && printf '' >"$dfb_dir/err" && printf '\n' >&8 && printf '\n' >&9
}

# Let go of pipes and files. What still holds the pipes can go on printing, into nothing.
dfb_retire() {
	# One that has ended prints into nothing already.
	[ -e "$dfb_dir/out.ended" ] || kill -TERM "${dfb_collectors% *}"
	[ -e "$dfb_dir/err.ended" ] || kill -TERM "${dfb_collectors#* }"
	exec 5>&- 6>&- 8>&- 9>&-
	\command rm -rf "$dfb_dir"
}

# Be ready for the next command, the output of the last one having been taken.
dfb_settle() {
	dfb_due=
	if [ -z "$dfb_dir" ]; then
		dfb_prepare
	elif [ ! -p "$dfb_dir/out.pipe" ] || [ ! -p "$dfb_dir/err.pipe" ] ||
		[ -e "$dfb_dir/out.ended" ] || [ -e "$dfb_dir/err.ended" ] || dfb_held || ! dfb_reset; then
		dfb_retire
		dfb_prepare
	elif [ -n "$dfb_full" ] && dfb_roomy "$dfb_state/probe"; then
		dfb_retire
		dfb_prepare
	fi
}

# Whether a process other than ours and the collectors holds one of the pipes. Looks at those that have come since the
# last time only.
dfb_held() {
	dfb_found=1
	dfb_now=
	for dfb_p in /proc/[0-9]*; do
		dfb_now="$dfb_now $dfb_p"
		case $dfb_known in *" $dfb_p "*) continue ;; esac
		dfb_holds "$dfb_p" && dfb_found=0
	done
	dfb_known="$dfb_now "
	return $dfb_found
}

# shellcheck disable=SC3013 # -ef: in dash, bash and busybox alike
dfb_holds() {
	IFS= read -r dfb_stat <"$1/stat" || return 1
	dfb_stat=${dfb_stat##*") "}
	case $dfb_stat in Z* | X*) return 1 ;; esac
	dfb_stat=${dfb_stat#* }
	case " $dfb_collectors " in *" ${dfb_stat%% *} "*) return 1 ;; esac
	# Another user's: it cannot be looked into.
	[ -r "$1/fd" ] || return 0
	for dfb_f in "$1"/fd/*; do
		[ "$dfb_f" -ef "$dfb_dir/out.pipe" ] || [ "$dfb_f" -ef "$dfb_dir/err.pipe" ] && return 0
	done
	return 1
}

# dfb_run STOP LIMIT VARIABLES COMMAND: run a command (dfb_command). STOP, random, comes after the output of each stream
# in its file. Streams over LIMIT bytes are cut in the middle.
dfb_run() {
	[ -z "$dfb_due" ] && [ -p "$dfb_dir/out.pipe" ] && [ -p "$dfb_dir/err.pipe" ] || dfb_settle
	if [ -z "$dfb_dir" ]; then
		reply nowhere
		return
	fi
	dfb_stop=$1 dfb_limit=$2
	dfb_command "$3" "$4"
}

dfb_done() {
	dfb_go='' dfb_status=$1
	dfb_answer >&4 3<&-
	dfb_end
}

# Reply to dfb_run: its exit code; for each stream how it comes and how many bytes it had; the directory of the files;
# `ok`, `full` when the disk is, or `ended` when what collects the output did. A stream comes as a part (`inline`); or
# with a byte before and STOP after, as two parts, the second empty unless it was cut (`raw`); or so in a file that is
# to be copied (`file`; `cut`: head and tail, with nothing between).
dfb_answer() {
	printf '%s\n' "$dfb_stop" >&5
	printf '%s\n' "$dfb_stop" >&6
	dfb_was=${LC_ALL-} dfb_had=${LC_ALL+had}
	LC_ALL=C
	dfb_take out 8
	dfb_out=$dfb_text dfb_out_how=$dfb_how dfb_out_size=$dfb_size
	dfb_take err 9
	LC_ALL=$dfb_was
	[ -n "$dfb_had" ] || unset LC_ALL
	dfb_lost=${dfb_full:-ok}
	if [ -e "$dfb_dir/out.ended" ] || [ -e "$dfb_dir/err.ended" ]; then
		dfb_lost=ended
		printf '%s\n' "$dfb_stop" >"$dfb_dir/probe" || dfb_lost=full
	fi
	reply "$dfb_status" "$dfb_out_how" "$dfb_out_size" "$dfb_how" "$dfb_size" "$dfb_dir" "$dfb_lost"
	dfb_due=yes
	case $dfb_out_how$dfb_how in
	inlineinline) dfb_then=dfb_settle ;;
	esac
	dfb_print "$dfb_out_how" "$dfb_out_size" "$dfb_out" 8
	dfb_print "$dfb_how" "$dfb_size" "$dfb_text" 9
}

# dfb_print HOW SIZE TEXT DESCRIPTOR: a stream as a part of the reply.
dfb_print() {
	dfb_size=$2
	case $1 in
	inline) part "$3" ;;
	raw)
		dfb_send
		dfb_head "$4"
		part
		dfb_send
		[ "$dfb_size" -le "$dfb_limit" ] || dfb_tail "$4"
		part
		;;
	esac
}

# dfb_take NAME DESCRIPTOR: wait until all that was printed before STOP is in the file, and read it if it is
# little. Sets dfb_how, dfb_size, dfb_text.
dfb_take() {
	dfb_text='' dfb_polls=0
	exec 7<"/proc/self/fd/$2"
	while dfb_position "$2" && [ "$dfb_at" -le $((dfb_inline + 34)) ]; do
		if IFS= read -r dfb_part <&7; then
			dfb_text=$dfb_text$dfb_part
			case $dfb_text in *"$dfb_stop") break ;; esac
			dfb_text=$dfb_text$dfb_nl
		else
			dfb_text=$dfb_text$dfb_part
			[ ! -e "$dfb_dir/$1.ended" ] || break
			dfb_pause
		fi
	done
	exec 7<&-
	dfb_text=${dfb_text#"$dfb_nl"}
	case $dfb_text in
	*"$dfb_stop")
		dfb_text=${dfb_text%"$dfb_stop"}
		dfb_how=inline
		dfb_size=${#dfb_text}
		# `read` drops NULs: then, and when something is printing on, the file has more than was read. The position
		# may be late by a moment.
		for dfb_p in 1 2 3; do
			dfb_position "$2"
			[ "$dfb_at" -ne $((dfb_size + 34)) ] || return 0
		done
		;;
	esac
	dfb_await "$1" "$2"
	dfb_position "$2"
	dfb_text='' dfb_how=file dfb_size=$((dfb_at - 34))
	[ ! -e "$dfb_dir/$1.ended" ] || dfb_size=$((dfb_at - 1))
	[ "$dfb_size" -ge 0 ] || dfb_size=0
	if [ -n "$dfb_full" ] || [ ! -e "$dfb_dir/$1" ]; then
		dfb_how=raw
	elif [ "$dfb_size" -gt "$dfb_limit" ]; then
		if { dfb_head "$2" && dfb_tail "$2"; } >"$dfb_dir/$1.cut"; then
			dfb_how='cut'
		else
			dfb_how=raw
		fi
	fi
}

# The file of a descriptor, or its first half of LIMIT; with the byte before, and STOP when there is nothing to cut.
dfb_head() {
	if [ "$dfb_size" -gt "$dfb_limit" ]; then
		\command head -c $((dfb_limit / 2 + 1)) "/proc/self/fd/$1"
	else
		\command head -c $((dfb_size + 34)) "/proc/self/fd/$1"
	fi
}

# The other half of LIMIT, with STOP.
dfb_tail() {
	\command tail -c $((dfb_limit - dfb_limit / 2 + 33)) "/proc/self/fd/$1"
}

# How many bytes the collector has written.
dfb_position() {
	read -r dfb_p dfb_at <"/proc/self/fdinfo/$1"
}

# Wait until STOP is in the file: last, or near the end when a background child prints on.
dfb_await() {
	until [ "$(\command tail -c 33 "/proc/self/fd/$2")" = "$dfb_stop" ]; do
		\command tail -c 1000000 "/proc/self/fd/$2" | \command grep -q "$dfb_stop" && return
		[ ! -e "$dfb_dir/$1.ended" ] || return
		dfb_pause
	done
}

# Let the collector run. Waiting for a child gives it the processor, which looking again would keep.
dfb_pause() {
	dfb_polls=$((dfb_polls + 1))
	if [ "$dfb_polls" -lt 50 ]; then
		(:)
	else
		\command sleep 0.02 || \command sleep 1
	fi
}
