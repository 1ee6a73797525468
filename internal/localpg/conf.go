package localpg

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// defaults are durable first: what is answered 202 survives a power cut.
//
// The server's own log must hold no payload and no coordinate, and an error's
// text can: `invalid input syntax: "…"`, GEOS's "… at or near point x y". So it
// starts above errors (which clients get anyhow), without details, statements
// and parameters. What is left is little, and seven files hold a week of it.
var defaults = map[string]string{
	"listen_addresses":        "",
	"unix_socket_permissions": "0700",
	"max_connections":         "200",

	"fsync":              "on",
	"synchronous_commit": "on",
	"wal_compression":    "on",
	"max_wal_size":       "2GB",
	"checkpoint_timeout": "15min",

	"shared_buffers":     "256MB",
	"random_page_cost":   "1.1",
	"jit":                "off",
	"autovacuum_naptime": "15s",

	"timezone":                   "UTC",
	"lc_messages":                "C",
	"default_text_search_config": "pg_catalog.english",

	"logging_collector":                 "on",
	"log_directory":                     "log",
	"log_filename":                      "postgres-%a.log",
	"log_rotation_age":                  "1d",
	"log_rotation_size":                 "0",
	"log_truncate_on_rotation":          "on",
	"log_timezone":                      "UTC",
	"log_min_messages":                  "log",
	"log_min_error_statement":           "panic",
	"log_error_verbosity":               "terse",
	"log_statement":                     "none",
	"log_min_duration_statement":        "-1",
	"log_min_duration_sample":           "-1",
	"log_parameter_max_length":          "0",
	"log_parameter_max_length_on_error": "0",
	"log_checkpoints":                   "off",
	"log_autovacuum_min_duration":       "-1",
}

var settingName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_$]*(\.[a-zA-Z_][a-zA-Z0-9_$]*)?$`)

// writeConf replaces postgresql.conf. Every start writes it whole, so that one
// cut short by a crash is healed by the next.
func (s *server) writeConf(ctx context.Context, settings map[string]string) error {
	conf, err := renderConf(s.socketDir, settings)
	if err != nil {
		return err
	}
	cmd := s.account.sh(ctx, s.data,
		`umask 077; mkdir -p log && cat >postgresql.conf.new && mv postgresql.conf.new postgresql.conf`)
	cmd.Stdin = bytes.NewBufferString(conf)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("writing postgresql.conf: %w: %s", err, out)
	}
	return nil
}

func renderConf(socketDir string, settings map[string]string) (string, error) {
	merged := maps.Clone(defaults)
	merged["unix_socket_directories"] = socketDir
	for name, value := range settings {
		if !settingName.MatchString(name) {
			return "", fmt.Errorf("not the name of a PostgreSQL setting: %q", name)
		}
		merged[strings.ToLower(name)] = value
	}
	var b strings.Builder
	b.WriteString("# Written by geodlq at each start. Your own settings go to local.conf.\n")
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		fmt.Fprintf(&b, "%s = %s\n", name, quoteSetting(merged[name]))
	}
	b.WriteString("include_if_exists = 'local.conf'\n")
	return b.String(), nil
}

// quoteSetting quotes as postgresql.conf reads: backslashes escape there.
func quoteSetting(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`, "\n", `\n`).Replace(value) + "'"
}
