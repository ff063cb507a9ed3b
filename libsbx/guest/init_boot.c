/*
 * From the initramfs to the box's root. Nothing here waits for a daemon: disks are found by their
 * serial as soon as the drivers are in.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "guest/guest.h"
#include "guest/init.h"
#include "sbx/clock.h"
#include "sbx/log.h"

#define NEW "/new"
#define MODULES "/modules"
#define DISK_WAIT_MS 15000

void init_fatal(const char *what)
{
	sbx_log(SBX_LOG_ERROR, "init.fatal", sbx_kv_s("what", what), sbx_kv_i("errno", errno));
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

static void mount_at(const char *type, const char *at, unsigned long flags, const char *data, bool must)
{
	if (mkdir(at, 0755) < 0 && errno != EEXIST && must)
		init_fatal(at);
	if (mount(type, at, type, flags, data) < 0 && errno != EBUSY && must)
		init_fatal(at);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int visible(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

/* The image builder numbered them in the order they need each other. */
static void insert_modules(void)
{
	struct dirent **list = NULL;
	int n = scandir(MODULES, &list, visible, by_name);

	for (int i = 0; i < n; i++) {
		char path[sizeof(MODULES) + sizeof(list[i]->d_name) + 1];
		int fd;

		snprintf(path, sizeof(path), MODULES "/%s", list[i]->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
			sbx_log(SBX_LOG_ERROR, "init.module", sbx_kv_s("name", list[i]->d_name),
				sbx_kv_i("errno", errno));
		if (fd >= 0)
			close(fd);
		free(list[i]);
	}
	free(list);
}

static bool disk_has_serial(const char *name, const char *serial)
{
	char path[320], got[64] = "";
	sbx_auto_close int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/block/%s/serial", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = sbx_fd_read_full(fd, got, sizeof(got) - 1);
	return n > 0 && sbx_str_eqz(sbx_str_trim((struct sbx_str){ got, (size_t)n }), serial);
}

static bool look_for_disk(const char *serial, char *dev, size_t cap)
{
	DIR *d = opendir("/sys/block");
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d)) != NULL) {
		if (visible(e) && disk_has_serial(e->d_name, serial)) {
			snprintf(dev, cap, "/dev/%s", e->d_name);
			found = true;
		}
	}
	if (d)
		closedir(d);
	return found;
}

static void find_disk(const char *serial, char *dev, size_t cap)
{
	int64_t deadline = sbx_mono_ms() + DISK_WAIT_MS;

	while (!look_for_disk(serial, dev, cap)) {
		if (sbx_ms_left(deadline) == 0) {
			errno = ENODEV;
			init_fatal(serial);
		}
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
}

static void copy_file(const char *from, const char *to, mode_t mode)
{
	sbx_auto_close int in = open(from, O_RDONLY | O_CLOEXEC);
	sbx_auto_close int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	char chunk[65536];
	ssize_t n;

	if (in < 0 || out < 0)
		init_fatal(from);
	while ((n = sbx_fd_read_full(in, chunk, sizeof(chunk))) > 0) {
		if (sbx_fd_write_full(out, chunk, (size_t)n) < 0)
			init_fatal(to);
	}
	if (n < 0)
		init_fatal(from);
}

/* The config drive holds a JSON object and then NULs; the copy ends with the text. */
static void copy_config(const char *dev)
{
	sbx_auto_buf struct sbx_buf b;
	sbx_auto_close int in = open(dev, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;
	char *room;

	sbx_buf_init(&b, SBX_CONFIG_MAX);
	room = sbx_buf_reserve(&b, SBX_CONFIG_MAX);
	if (in >= 0 && room)
		n = sbx_fd_read_full(in, room, SBX_CONFIG_MAX);
	if (n <= 0)
		init_fatal(dev);
	n = (ssize_t)strnlen(room, (size_t)n);
	if (sbx_fd_replace(NEW SBX_CONFIG, (struct sbx_str){ room, (size_t)n }, 0600, false, NULL) < 0)
		init_fatal(SBX_CONFIG);
}

/* Frees the memory of the initramfs; what is mounted below it stays. */
static void remove_tree(int at, const char *name, dev_t dev)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	struct stat st;

	if (d && fstat(fd, &st) == 0 && st.st_dev == dev) {
		while ((e = readdir(d)) != NULL) {
			if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
				continue;
			if (e->d_type == DT_DIR)
				remove_tree(fd, e->d_name, dev);
			else
				unlinkat(fd, e->d_name, 0);
		}
		unlinkat(at, name, AT_REMOVEDIR);
	}
	if (d)
		closedir(d);
}

static void switch_root(void)
{
	static const char *const moved[] = { "dev", "proc", "sys" };
	struct stat st;

	for (size_t i = 0; i < SBX_ARRAY_LEN(moved); i++) {
		char from[16], to[32];

		snprintf(from, sizeof(from), "/%s", moved[i]);
		snprintf(to, sizeof(to), NEW "/%s", moved[i]);
		mkdir(to, 0755);
		if (mount(from, to, NULL, MS_MOVE, NULL) < 0)
			init_fatal(to);
	}
	if (stat("/", &st) == 0)
		remove_tree(AT_FDCWD, "/", st.st_dev);
	if (chdir(NEW) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		init_fatal("switch root");
}

static void make_devices(void)
{
	static const struct {
		const char *target, *link;
	} links[] = {
		{ "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
	};

	for (size_t i = 0; i < SBX_ARRAY_LEN(links); i++)
		(void)!symlink(links[i].target, links[i].link);
	/* Opening these loads their modules. */
	mkdir("/dev/net", 0755);
	mknod("/dev/net/tun", S_IFCHR | 0666, makedev(10, 200));
	mknod("/dev/fuse", S_IFCHR | 0666, makedev(10, 229));
	mount_at("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666", false);
	mount_at("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777", false);
	mount_at("mqueue", "/dev/mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false);
	mkdir("/run/lock", 0755);
	chmod("/run/lock", 01777);
}

void init_boot(void)
{
	char dev[300];

	mount_at("devtmpfs", "/dev", MS_NOSUID, "mode=0755", true);
	mount_at("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true);
	mount_at("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true);
	insert_modules();
	find_disk("sbxroot", dev, sizeof(dev));
	mkdir(NEW, 0755);
	/* noinit_itable: zeroing the inode tables in the background would fill the box's overlay. */
	if (mount(dev, NEW, "ext4", MS_NOATIME, "noinit_itable") < 0)
		init_fatal(dev);
	mount_at("tmpfs", NEW "/run", MS_NOSUID | MS_NODEV, "mode=0755,size=20%", true);
	/* Of its own, so that a user who fills /run takes nothing from us. Results of commands lie here. */
	mount_at("tmpfs", NEW SBX_RUN_DIR, MS_NOSUID | MS_NODEV, "mode=0700,size=16%", true);
	if (mkdir(NEW SBX_RUN_DIR "/bin", 0700) < 0 || mkdir(NEW SBX_EXEC_DIR, 0700) < 0 ||
		mkdir(NEW SBX_LIVE_DIR, 0700) < 0)
		init_fatal(SBX_EXEC_DIR);
	copy_file("/bin/boxd", NEW SBX_BOXD, 0755);
	find_disk("sbxconf", dev, sizeof(dev));
	copy_config(dev);
	switch_root();
	make_devices();
	mount_at("cgroup2", SBX_CGROUPS, MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false);
}
