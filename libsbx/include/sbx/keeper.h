/*
 * The keeper: one process a host, the only one with libvirt rights. It takes ops from the database and
 * executes them, and compares what runs on the host with what the database says.
 *
 * Killing it at any point is harmless: an op is done again by the next keeper, each step of it may be
 * repeated, and reconcile finds what fell between a step and its record.
 *
 * It needs: read and write on libvirt's socket (group libvirt), /dev/kvm (group kvm) where there is KVM,
 * the master key file, the images below state_dir, and its own volumes, serial and run directories. It
 * needs no root.
 */
#ifndef SBX_KEEPER_H
#define SBX_KEEPER_H

#include "sbx/conf.h"

#define SBX_KEEPER_VERSION "0.1"

/*
 * Runs until SIGTERM or SIGINT, then gives its leases back. Blocks these signals, so it is called before
 * the process has other threads. -1 when it cannot start or lost its host to another keeper.
 */
int sbx_keeper_run(const struct sbx_conf *conf, struct sbx_err *err) SBX_MUST_CHECK;

/*
 * Keeps argv running as a child of a process that also adopts and reaps the orphans below it: when argv
 * ends, it is started again after a second. SIGTERM and SIGINT are passed on to it and end both; gives its
 * exit status then (128 + signal when one ended it), or 127 when it cannot be run.
 * libvirt waits for QEMU to be reaped, which process 1 of a container may do late or never.
 */
int sbx_reap_run(char *const argv[]);

#endif
