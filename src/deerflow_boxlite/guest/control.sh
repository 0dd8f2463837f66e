# shellcheck shell=sh
# What the control channel, which is root's, has beside loop.sh: starting a box, ending what a command left.

# dfb_start UID GID STATE DIRECTORY...: make the directories that a box has, for the image's user, and an empty STATE.
# What is there already is not made again, since every program here is part of a boot.
dfb_start() {
	dfb_owner=$1:$2 dfb_state=$3
	shift 3
	if dfb_error=$({ dfb_make_state && dfb_make_directories "$@"; } 2>&1); then
		reply ok
	else
		reply failed
		part "$dfb_error"
	fi
}

dfb_make_state() {
	if [ -e "$dfb_state" ]; then
		rm -rf "$dfb_state" || return
	fi
	(umask 077 && mkdir -p "$dfb_state") || return
	[ "$dfb_owner" = 0:0 ] || chown "$dfb_owner" "$dfb_state"
}

# Only what is made here changes its owner: what the user has made of it since stays.
dfb_make_directories() {
	umask 022
	for dfb_d in "$@"; do
		shift
		[ -d "$dfb_d" ] || set -- "$@" "$dfb_d"
	done
	[ $# -gt 0 ] || return 0
	mkdir -p "$@" || return
	[ "$dfb_owner" = 0:0 ] || chown "$dfb_owner" "$@"
}

# dfb_kill SHELL MARK: kill what the running command of the channel shell SHELL has started: its descendants by parent
# ids; processes of its session that are not older than the command (orphans); processes not older with MARK in their
# environment (daemons that made a session of their own). Of a shell that is gone, by MARK alone.
#
# Each is stopped when it is found and killed when a look finds no more: killed one by one, a shell whose child is gone
# goes on to its next command, which escapes.
dfb_kill() {
	dfb_shell=$1 dfb_mark=$2 dfb_since='' dfb_victims=' ' dfb_round=0
	[ -d "/proc/$1" ] || dfb_since=0
	while [ "$dfb_round" -lt 100 ]; do
		dfb_round=$((dfb_round + 1)) dfb_more=
		for dfb_p in /proc/[0-9]*; do
			dfb_consider "${dfb_p#/proc/}" && dfb_more=yes
		done
		[ -n "$dfb_more" ] || break
	done
	# shellcheck disable=SC2086 # process ids
	[ "$dfb_victims" = ' ' ] || kill -KILL $dfb_victims
	# shellcheck disable=SC2086
	set -- $dfb_victims
	for dfb_p in "$@"; do
		dfb_gone "$dfb_p"
	done
	reply "$#"
}

# Wait until a killed process is no more, but not for ever: one that waits for a disk stays as long as that takes.
dfb_gone() {
	dfb_round=0
	while [ "$dfb_round" -lt 200 ] && IFS= read -r dfb_stat <"/proc/$1/stat"; do
		case ${dfb_stat##*") "} in [ZX]*) return ;; esac
		dfb_round=$((dfb_round + 1))
		# Waiting for a child gives the processor away.
		(:)
	done
}

# Stop a process when it is one of them and not stopped yet. Children have higher numbers than their parents but for a
# wrap, so one look mostly finds a whole tree from the top down.
dfb_consider() {
	case $dfb_victims in *" $1 "*) return 1 ;; esac
	[ "$1" != "$dfb_shell" ] && [ "$1" != "$$" ] && [ "$1" != 1 ] || return 1
	IFS= read -r dfb_stat <"/proc/$1/stat" || return 1
	# state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime priority nice
	# threads itrealvalue starttime: proc(5), from field 3 on. The name before them may hold anything.
	dfb_session_start "${dfb_stat##*") "}"
	[ "$dfb_parent" != "$dfb_shell" ] || dfb_oldest
	case $dfb_victims in
	*" $dfb_parent "*) ;;
	*)
		if [ "$dfb_parent" != "$dfb_shell" ]; then
			[ -n "$dfb_since" ] && [ "$dfb_started" -ge "$dfb_since" ] || return 1
			# In the same tick of the clock as the command (10 ms), what an earlier one left is told apart by the mark.
			{ [ "$dfb_session" = "$dfb_shell" ] && [ "$dfb_since" -gt 0 ] && [ "$dfb_started" -gt "$dfb_since" ]; } ||
				dfb_marked "$1" || return 1
		fi
		;;
	esac
	kill -STOP "$1" || return 1
	dfb_victims="$dfb_victims$1 "
}

dfb_session_start() {
	# shellcheck disable=SC2086 # fields
	set -- $1
	dfb_parent=$2 dfb_session=$4
	shift 19
	dfb_started=$1
}

# The command is not older than the oldest child of its shell.
dfb_oldest() {
	if [ -z "$dfb_since" ] || [ "$dfb_started" -lt "$dfb_since" ]; then
		dfb_since=$dfb_started
	fi
}

dfb_marked() {
	while IFS= read -r dfb_variable || [ -n "$dfb_variable" ]; do
		case $dfb_variable in *"DEERFLOW_BOXLITE_COMMAND=$dfb_mark"*) return 0 ;; esac
	done <"/proc/$1/environ"
	return 1
}

# dfb_gather STATE NAME SHELL LIMIT: what a command printed whose channel shell ended under it. Reply: for each stream
# `file` or `cut` and how many bytes there are in the file, and its directory; or `nowhere`.
dfb_gather() {
	for dfb_dir in "$1/$2".*."$3" /dev/shm/dfb-"$2".*."$3"; do
		[ -e "$dfb_dir/out" ] && break
		dfb_dir=
	done
	if [ -z "$dfb_dir" ]; then
		reply nowhere
		return
	fi
	# The collectors come to an end, but for a background child that holds the pipes.
	dfb_polls=0
	until [ -e "$dfb_dir/out.ended" ] && [ -e "$dfb_dir/err.ended" ] || [ "$dfb_polls" -ge 25 ]; do
		dfb_polls=$((dfb_polls + 1))
		sleep 0.02 || sleep 1
	done
	dfb_piece "$dfb_dir/out" "$4"
	dfb_out_how=$dfb_how dfb_out_size=$dfb_size
	dfb_piece "$dfb_dir/err" "$4"
	reply "$dfb_out_how" "$dfb_out_size" "$dfb_how" "$dfb_size" "$dfb_dir"
}

dfb_piece() {
	dfb_size=$(($(wc -c <"$1"))) dfb_how=file
	if [ "$dfb_size" -gt "$2" ]; then
		{
			head -c $(($2 / 2 + 1)) "$1"
			tail -c $(($2 - $2 / 2)) "$1"
		} >"$1.cut" && dfb_how='cut'
	fi
}

# dfb_show PATH: the text of a file that cannot be copied.
dfb_show() {
	reply ok
	dfb_send
	cat "$1"
	part
}

# dfb_drop STATE NAME SHELL: remove the directory of a channel that is no more.
dfb_drop() {
	rm -rf "$1/$2".*."$3" /dev/shm/dfb-"$2".*."$3"
	reply ok
}
