package main

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// config is all of geodlq's configuration: environment first, flags over it.
type config struct {
	databaseURL    string
	readURL        string
	readLagMax     duration
	data           string
	addr           string
	sinkURL        string
	sinkSecret     string
	sinkTimeout    duration
	maxAttempts    int
	retryBase      duration
	retryMax       duration
	rescueAfter    duration
	redriveCap     int
	redriveBackoff duration
	undoWindow     duration
	dedupeWindow   duration
	keyRetention   duration
	readTimeout    duration
	bodyMax        byteSize
	inFlightMax    byteSize
	spoolMax       byteSize
	inlineMax      byteSize
	blobURL        string
	workers        int
	mapStyle       string
	logLevel       string

	explicit map[string]bool       // the variables that were set, by name
	values   map[string]flag.Value // all of them, by name
}

// environment is the configuration as variables, for a process of our own that serves
// no pages.
func (c config) environment(databaseURL string) []string {
	all := []string{"DATABASE_URL=" + databaseURL}
	for name, value := range c.values {
		if name != "DATABASE_URL" && name != "DATABASE_READ_URL" {
			all = append(all, name+"="+value.String())
		}
	}
	return all
}

// bind declares every setting once: its flag, its variable, its default.
func (c *config) bind(flags *flag.FlagSet, getenv func(string) string) error {
	*c = config{
		data: ".geodlq", addr: "127.0.0.1:8080", sinkTimeout: duration(10 * time.Second),
		maxAttempts: 6, retryBase: duration(time.Second), retryMax: duration(300 * time.Second),
		rescueAfter: duration(3 * time.Minute), redriveCap: 5, redriveBackoff: duration(30 * time.Second),
		undoWindow:   duration(10 * time.Second),
		dedupeWindow: duration(24 * time.Hour), keyRetention: duration(30 * 24 * time.Hour), readTimeout: duration(10 * time.Second), readLagMax: duration(5 * time.Second),
		bodyMax: 32 << 20, inFlightMax: 128 << 20, inlineMax: 64 << 10, spoolMax: 1 << 30, logLevel: "info",
		explicit: map[string]bool{}, values: map[string]flag.Value{},
	}
	b := binder{flags: flags, getenv: getenv, config: c}
	b.text(&c.databaseURL, "DATABASE_URL", "PostgreSQL to use; empty: a private PostGIS cluster under the data directory")
	b.text(&c.readURL, "DATABASE_READ_URL", "streaming replica to read tiles, charts, lists and exports on; empty: none")
	b.value(&c.readLagMax, "GEODLQ_READ_LAG_MAX", "how far the replica may be behind; further, the primary is read")
	b.text(&c.data, "GEODLQ_DATA", "directory for the private cluster, the spool and large bodies")
	b.text(&c.addr, "GEODLQ_ADDR", "address to listen on")
	b.text(&c.sinkURL, "GEODLQ_SINK_URL", "URL that features are posted to; empty: the features table")
	b.text(&c.sinkSecret, "GEODLQ_SINK_SECRET", "base64 secret that signs what is posted (Standard Webhooks); empty: unsigned")
	b.value(&c.sinkTimeout, "GEODLQ_SINK_TIMEOUT", "how long the sink may take to answer")
	b.number(&c.maxAttempts, "GEODLQ_MAX_ATTEMPTS", "tries of an event before it is dead")
	b.value(&c.retryBase, "GEODLQ_RETRY_BASE", "first pause between tries; each next one is twice as long")
	b.value(&c.retryMax, "GEODLQ_RETRY_MAX", "longest pause between tries")
	b.value(&c.rescueAfter, "GEODLQ_RESCUE_AFTER", "when a job whose worker vanished is taken up again")
	b.number(&c.redriveCap, "GEODLQ_REDRIVE_CAP", "redrives that may fail before a letter is quarantined")
	b.value(&c.redriveBackoff, "GEODLQ_REDRIVE_BACKOFF", "times the failed redrives: a letter's not_before")
	b.value(&c.undoWindow, "GEODLQ_UNDO_WINDOW", "for which the redrive of one letter waits, and can be taken back")
	b.value(&c.dedupeWindow, "GEODLQ_DEDUPE_WINDOW", "within which the same content without a key is a duplicate")
	b.value(&c.keyRetention, "GEODLQ_KEY_RETENTION", "how long keys are kept after the end")
	b.value(&c.readTimeout, "GEODLQ_READ_TIMEOUT", "how long a query over letters may take before it is given up as too slow")
	b.value(&c.bodyMax, "GEODLQ_BODY_MAX", "largest body, also decoded")
	b.value(&c.inFlightMax, "GEODLQ_IN_FLIGHT_MAX", "bytes of all bodies at once; over it 503")
	b.value(&c.spoolMax, "GEODLQ_SPOOL_MAX", "bytes on disk of what is taken while the database is away; over it 503")
	b.value(&c.inlineMax, "GEODLQ_INLINE_MAX", "largest body that is kept in the database; a larger one goes to the bucket")
	b.text(&c.blobURL, "GEODLQ_BLOB_URL", "bucket of large bodies, such as s3://name?region=eu-central-1; empty: files under the data directory")
	b.number(&c.workers, "GEODLQ_WORKERS", "jobs at once; 0: 1000, or 64 where features are posted to a URL")
	b.text(&c.mapStyle, "GEODLQ_MAP_STYLE", "URL of a MapLibre style for the basemap; empty: the built-in one, which needs no network")
	b.text(&c.logLevel, "GEODLQ_LOG_LEVEL", "debug, info, warn or error")
	return b.err
}

func (c *config) check() error {
	switch {
	case c.maxAttempts < 1:
		return fmt.Errorf("GEODLQ_MAX_ATTEMPTS must be at least 1")
	case c.redriveCap < 1:
		return fmt.Errorf("GEODLQ_REDRIVE_CAP must be at least 1")
	case c.workers < 0 || c.workers > 10_000:
		return fmt.Errorf("GEODLQ_WORKERS must be 0 to 10000")
	case c.rescueAfter < duration(time.Second):
		return fmt.Errorf("GEODLQ_RESCUE_AFTER must be at least 1s")
	case c.retryBase <= 0 || c.retryMax < c.retryBase:
		return fmt.Errorf("GEODLQ_RETRY_BASE must be positive, and GEODLQ_RETRY_MAX no less")
	case c.readTimeout < duration(time.Millisecond):
		return fmt.Errorf("GEODLQ_READ_TIMEOUT must be at least 1ms")
	case c.readLagMax < duration(time.Second):
		return fmt.Errorf("GEODLQ_READ_LAG_MAX must be at least 1s")
	case c.sinkTimeout <= 0:
		return fmt.Errorf("GEODLQ_SINK_TIMEOUT must be positive")
	case c.bodyMax < 1 || c.inFlightMax < c.bodyMax+c.bodyMax/4:
		return fmt.Errorf("GEODLQ_BODY_MAX must be positive, and GEODLQ_IN_FLIGHT_MAX a quarter more at least")
	}
	return nil
}

type binder struct {
	flags  *flag.FlagSet
	getenv func(string) string
	config *config
	err    error
}

// flagName is a variable's flag: GEODLQ_SINK_URL is -sink-url.
func flagName(variable string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(variable, "GEODLQ_"), "_", "-"))
}

func (b *binder) value(v flag.Value, variable, help string) {
	b.config.values[variable] = v
	b.flags.Var(noted{v, b.config, variable}, flagName(variable), help+" ("+variable+")")
	if text := b.getenv(variable); text != "" {
		b.config.explicit[variable] = true
		if err := v.Set(text); err != nil && b.err == nil {
			b.err = fmt.Errorf("%s=%q: %w", variable, text, err)
		}
	}
}

func (b *binder) text(p *string, variable, help string) { b.value((*textValue)(p), variable, help) }
func (b *binder) number(p *int, variable, help string)  { b.value((*numberValue)(p), variable, help) }

// noted notes that a flag was given.
type noted struct {
	flag.Value
	config   *config
	variable string
}

func (n noted) Set(text string) error {
	n.config.explicit[n.variable] = true
	return n.Value.Set(text)
}

// String answers the flag package, which calls it on a zero value.
func (n noted) String() string {
	if n.Value == nil {
		return ""
	}
	return n.Value.String()
}

type textValue string

func (v *textValue) Set(text string) error { *v = textValue(text); return nil }
func (v *textValue) String() string        { return string(*v) }

type numberValue int

func (v *numberValue) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("is not a whole number")
	}
	*v = numberValue(n)
	return nil
}
func (v *numberValue) String() string { return strconv.Itoa(int(*v)) }

// duration is a time.Duration that also reads days: 30d, "30 days".
type duration time.Duration

func (d *duration) Set(text string) error {
	text = strings.TrimSpace(text)
	for _, unit := range []string{" days", " day", "d"} {
		if days, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.Atoi(days)
			if err != nil || n < 0 || n > 36500 {
				return fmt.Errorf("is not a number of days")
			}
			*d = duration(time.Duration(n) * 24 * time.Hour)
			return nil
		}
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("is not a duration such as 500ms, 10s, 3m, 24h or 30d")
	}
	*d = duration(parsed)
	return nil
}

func (d *duration) String() string { return time.Duration(*d).String() }

// byteSize is a number of bytes, written as 65536, 64KiB, "64 KiB" or 64KB.
type byteSize int64

var byteUnits = []struct {
	suffix string
	factor int64
}{{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"b", 1}, {"", 1}}

func (s *byteSize) Set(text string) error {
	text = strings.ToLower(strings.TrimSpace(text))
	for _, unit := range byteUnits {
		digits, ok := strings.CutSuffix(text, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > 1<<50/unit.factor {
			break
		}
		*s = byteSize(n * unit.factor)
		return nil
	}
	return fmt.Errorf("is not a size such as 65536, 64KiB or 32MiB")
}

func (s *byteSize) String() string {
	for _, unit := range []struct {
		name   string
		factor byteSize
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if *s >= unit.factor && *s%unit.factor == 0 {
			return strconv.FormatInt(int64(*s/unit.factor), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}
