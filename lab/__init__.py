"""The lab: an emulated KVM host to run commands in, on a machine that has no KVM. See README.md beside this file."""
