/*
 * The parts of process 1. It is one static program: its children that are ours (the spawner, runners)
 * are forks of it and need no file of the box's root, which the box's user may break.
 */
#ifndef SBX_INIT_H
#define SBX_INIT_H

#include <sys/types.h>

#include "sbx/fd.h"

/* init_boot.c: from the initramfs to the box's root; gives up by powering off. */
void init_boot(void);
void init_fatal(const char *what) SBX_NORETURN;

/* init_cgroup.c */
void cgroup_setup(void);
/* Makes the group; gives a descriptor of it, or -1. */
int cgroup_open(const char *path);
void cgroup_enter(const char *path);
/* Sends sig to every process in the group; gives how many there were. */
int cgroup_signal(const char *path, int sig);
void cgroup_kill(const char *path);
bool cgroup_populated(const char *path);
/* Writes a kernel file (sysctl, cgroup); what is missing is skipped. */
int put_file(const char *path, const char *text);

/* init_spawn.c, init_run.c: never return. */
void spawner_main(void) SBX_NORETURN;
/* The request is changed in place; empty: it is in SBX_LIVE_DIR. */
void runner_main(const char *id, char *request, size_t n) SBX_NORETURN;
void killer_main(const char *id) SBX_NORETURN;
void cmd_cgroup_path(const char *id, char *path, size_t cap);

/* A child's mind as exec'd programs expect it: default signals, nothing blocked. */
void child_reset_signals(void);
pid_t clone_into(int cgroup_fd, int *ret_pidfd);

#endif
