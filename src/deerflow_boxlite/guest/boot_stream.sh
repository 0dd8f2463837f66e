# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154 # dfb_go: become.sh
# As boot.sh, for one command whose output goes straight to our standard output and error (stream.sh).
dfb_nl="$(printf '\n_')"; dfb_nl=${dfb_nl%_};
IFS= read -r dfb_line <&3 && eval "$dfb_line";
( eval "$dfb_go" ) 2>&5 3<&- 5>&-;
dfb_done "$?"
