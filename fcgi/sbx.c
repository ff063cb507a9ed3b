/*
 * sbx: the operator's command line. Commands and options are tables; help and parsing come from
 * them. Exit status: 0 done, 1 failed, 2 wrong usage.
 */
#include <stdio.h>
#include <string.h>

#include "sbx_cli.h"

enum { EXIT_DONE, EXIT_FAILED, EXIT_USAGE };

#define BIT(o) (1u << (o))
#define HELP_COLUMN 44

static const struct option {
	const char *name;
	const char *value; /* what it stands for in the help; NULL: a switch */
	const char *help;
} options[OPT__MAX] = {
	[OPT_JSON] = { "--json", NULL, "print JSON" },
	[OPT_ALL] = { "--all", NULL, "those that ended too" },
	[OPT_DIR] = { "--dir", "DIR", "folder of the migrations (" SBX_SQL_DIR ")" },
	[OPT_PLAN] = { "--plan", "P", "free, pro or max (free)" },
	[OPT_NAME] = { "--name", "N", "what to call it" },
	[OPT_SCOPE] = { "--scope", "S", "full, agent (tools and boxes, no keys) or read (full)" },
	[OPT_EXPIRES] = { "--expires", "DAYS", "days until it expires (never)" },
};

static const struct command {
	const char *group, *verb; /* verb NULL: the group alone is the command */
	int args_min, args_max;
	const char *args;
	unsigned opts;
	const char *help;
	cli_fn run;
} commands[] = {
	{ "migrate", NULL, 0, 0, "", BIT(OPT_DIR), "bring the database up to date", cmd_migrate },
	{ "config", NULL, 0, 1, " [KEY]", 0, "print the settings in effect, or the value of one", cmd_config },
	{ "tenant", "add", 1, 1, " NAME", BIT(OPT_PLAN) | BIT(OPT_JSON), "add a customer", cmd_tenant_add },
	{ "tenant", "list", 0, 0, "", BIT(OPT_JSON), "list customers", cmd_tenant_list },
	{ "key", "add", 1, 1, " TENANT", BIT(OPT_NAME) | BIT(OPT_SCOPE) | BIT(OPT_EXPIRES) | BIT(OPT_JSON),
		"make an API key; it is printed this once", cmd_key_add },
	{ "key", "list", 0, 1, " [TENANT]", BIT(OPT_JSON), "list API keys", cmd_key_list },
	{ "key", "revoke", 1, 1, " ID|PREFIX", BIT(OPT_JSON), "refuse an API key from now on", cmd_key_revoke },
	{ "box", "list", 0, 0, "", BIT(OPT_ALL) | BIT(OPT_JSON), "list boxes", cmd_box_list },
	{ "box", "stop", 1, 1, " ID", BIT(OPT_JSON), "stop a box, whoever owns it", cmd_box_stop },
	{ "host", "list", 0, 0, "", BIT(OPT_JSON), "list hosts", cmd_host_list },
	{ "image", "add", 1, 1, " DIR", BIT(OPT_JSON), "register an image unit; new boxes start from it",
		cmd_image_add },
	{ "image", "list", 0, 0, "", BIT(OPT_JSON), "list image units", cmd_image_list },
};

static void print_usage(FILE *to, const struct command *c)
{
	char left[160];
	int n = snprintf(
		left, sizeof(left), "  sbx %s%s%s%s", c->group, c->verb ? " " : "", c->verb ? c->verb : "", c->args);
	for (int o = 0; o < OPT__MAX && n < (int)sizeof(left); o++)
		if ((c->opts & BIT(o)) != 0 && o != OPT_JSON)
			n += snprintf(left + n, sizeof(left) - (size_t)n, " [%s%s%s]", options[o].name,
				options[o].value ? " " : "", options[o].value ? options[o].value : "");
	if (n > HELP_COLUMN)
		fprintf(to, "%s\n%*s  %s\n", left, HELP_COLUMN, "", c->help);
	else
		fprintf(to, "%-*s  %s\n", HELP_COLUMN, left, c->help);
}

static void print_help(FILE *to)
{
	fputs("usage: sbx COMMAND [ARGUMENT…] [OPTION…]\n\n", to);
	for (size_t i = 0; i < SBX_ARRAY_LEN(commands); i++)
		print_usage(to, &commands[i]);
	fputs("\noptions\n", to);
	for (int o = 0; o < OPT__MAX; o++)
		fprintf(to, "  %-10s %-6s %s\n", options[o].name, options[o].value ? options[o].value : "",
			options[o].help);
	fputs("\nSettings: /etc/sbx/sbx.conf, or the file that SBX_CONFIG names.\n", to);
}

static int usage(const struct command *c, const char *what, const char *which)
{
	fprintf(stderr, "sbx: %s%s%s\n", what, which ? ": " : "", which ? which : "");
	if (c == NULL) {
		fputs("sbx --help lists the commands\n", stderr);
		return EXIT_USAGE;
	}
	fputs("usage:\n", stderr);
	print_usage(stderr, c);
	return EXIT_USAGE;
}

/* The command that argv names; *ret_next is the first word after it. */
static const struct command *find_command(int argc, char **argv, int *ret_next)
{
	for (size_t i = 0; i < SBX_ARRAY_LEN(commands); i++) {
		const struct command *c = &commands[i];
		if (argc < 2 || strcmp(argv[1], c->group) != 0)
			continue;
		if (c->verb != NULL && (argc < 3 || strcmp(argv[2], c->verb) != 0))
			continue;
		*ret_next = c->verb != NULL ? 3 : 2;
		return c;
	}
	return NULL;
}

/*
 * The option that word is, with its value in *ret_value when it stands behind '='; OPT__MAX: none.
 */
static int find_option(const char *word, const char **ret_value)
{
	size_t n = strcspn(word, "=");
	for (int o = 0; o < OPT__MAX; o++) {
		if (strlen(options[o].name) != n || strncmp(word, options[o].name, n) != 0)
			continue;
		*ret_value = word[n] == '=' ? word + n + 1 : NULL;
		return o;
	}
	return OPT__MAX;
}

static int parse(struct cli *cli, const struct command *c, int argc, char **argv, int i)
{
	int args_n = 0;
	bool is_end = false;
	for (; i < argc; i++) {
		const char *value = NULL;
		if (!is_end && strcmp(argv[i], "--") == 0) {
			is_end = true;
			continue;
		}
		if (is_end || argv[i][0] != '-') {
			if (args_n >= c->args_max)
				return usage(c, "too many arguments", argv[i]);
			cli->arg[args_n++] = argv[i];
			continue;
		}
		int o = find_option(argv[i], &value);
		if (o == OPT__MAX || (c->opts & BIT(o)) == 0)
			return usage(c, "unknown option", argv[i]);
		if (options[o].value == NULL && value != NULL)
			return usage(c, "this option takes no value", argv[i]);
		if (options[o].value != NULL && value == NULL) {
			if (i + 1 == argc)
				return usage(c, "the option needs a value", argv[i]);
			value = argv[++i];
		}
		cli->opt[o] = value != NULL ? value : "";
	}
	return args_n < c->args_min ? usage(c, "an argument is missing", NULL) : EXIT_DONE;
}

static bool wants_help(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return true;
	return argc == 2 && strcmp(argv[1], "help") == 0;
}

static int run(struct cli *cli, const struct command *c)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_conf *conf = sbx_conf_load(&err);
	cli->conf = conf;
	int rc = conf != NULL ? c->run(cli, &err) : -1;
	sbx_db_give(cli->db);
	sbx_db_pool_free(cli->pool);
	sbx_conf_free(conf);
	if (rc == 0)
		return EXIT_DONE;
	fprintf(stderr, "sbx: %s\n", err.msg);
	if (err.detail[0] != 0)
		fprintf(stderr, "sbx: (%s)\n", err.detail);
	return EXIT_FAILED;
}

int main(int argc, char **argv)
{
	struct cli cli = { .conf = NULL };
	int next = 0;
	if (wants_help(argc, argv)) {
		print_help(stdout);
		return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
	}
	if (argc < 2)
		return usage(NULL, "a command is missing", NULL);
	const struct command *c = find_command(argc, argv, &next);
	if (c == NULL)
		return usage(NULL, "unknown command", argv[1]);
	int status = parse(&cli, c, argc, argv, next);
	return status == EXIT_DONE ? run(&cli, c) : status;
}
