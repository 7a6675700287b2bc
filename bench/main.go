// Command bench measures Weir beside its peers, and beside the floor: the least that any limiter
// would have to do.
//
//	go run ./bench [-rounds N] [-round D] [-keys N] [-json FILE] [SECTION...]
//
// It prints tables with medians and ratios from one run. The README says what each section
// measures, and how.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// A section is a group of tables with a name.
type section struct {
	name  string
	about string
	run   func(*report) error
}

// sections returns all sections, in the order in which they are measured.
func sections() []section {
	return []section{
		{"take", "Allow, Take and Peek on one limiter", take},
		{"limits", "Take of each limit, beside its nearest peers", limits},
		{"adaptive", "entering a limit that finds itself, beside a semaphore", adaptiveLimits},
		{"bbr", "entering a limit that holds while the machine is overloaded", bbrLimits},
		{"reserve", "Reserve, Cancel and Settle", reserve},
		{"wait", "100,000 goroutines waiting on one limiter", wait},
		{"middleware", "a limit around a handler of net/http, beside httprate, tollbooth, ulule/limiter and x/time", middleware},
		{"costs", "reading the usage of streamed responses, and tokens that were verified before", costs},
		{"keyed", "Take on one of 1,000,000 keys: even, by zipf, in a flood", keyed},
		{"keybatch", "many keys at once beside single calls", keybatch},
		{"keymemory", "the memory of a key, with 10,000,000 live", keyMemory},
		{"keygc", "the garbage collector's pauses, with 10,000,000 live keys", keyGC},
		{"keygrowth", "the longest Take while a table grows to 10,000,000 keys", keyGrowth},
		{"keyflood", "100,000,000 keys through a table that keeps 1,000,000", keyFlood},
		{"replay", "the replay of an access log: parsing, deciding, and the whole way", replay},
		{"observed", "what metrics, the most refused keys and a page of the dashboard add", observed},
		{"redis", "limits in Redis, beside redis_rate and a script that does nothing", redis},
		{"kv", "a token bucket in memcached, MariaDB, etcd and NATS: callers that share writes, beside callers that do not", kv},
		{"sql", "a token bucket in PostgreSQL, MariaDB and SQLite, beside programs that lock the row, and the UPDATE alone", sql},
		{"stores", "one token bucket in each place where limits can be kept: memory, Redis, SQL, keys and values", compareStores},
		{"rls", "Envoy's rate limit service, beside envoyproxy/ratelimit and a gRPC server that decides nothing", rls},
		{"json", "limits over HTTP and JSON, beside a handler of net/http that decides nothing", jsonService},
		{"caddy", "Caddy with the module weircaddy, beside the same program without its directive", caddyModule},
		{"resp", "CL.THROTTLE over the Redis protocol, beside redis-server with the same rule in Lua", resp},
		{"gateway", "the gateway beside nginx, proxying and refusing", gateway},
		{"gatewayload", "how long requests take through the gateway and nginx, below their capacity", gatewayLoad},
		{"gatewaymemory", "what idle and queued connections cost the gateway and nginx", gatewayMemory},
		{"serve", "how soon weir serve answers, its memory and its size", serve},
		{"scaling", "costs by the number of cores, keys, callers and connections", scaling},
	}
}

// A report is one run of the program: its settings, and the tables so far.
type report struct {
	rounds int
	round  time.Duration
	keys   int  // in a table beside its peers; other sections use a multiple
	cold   bool // for tests of a section: without warming up
	out    io.Writer

	section string // the section that is measured now
	tables  []table
}

// add prints a table and keeps it.
func (r *report) add(t table) {
	t.Section = r.section
	t.print(r.out)
	r.tables = append(r.tables, t)
}

// contest measures a contest and adds its table.
func (r *report) contest(c contest) error {
	outcomes, err := c.run(r.rounds, r.round)
	if err != nil {
		return err
	}
	r.add(c.table(outcomes))
	return nil
}

// repeats returns how often measurements are repeated that need a process of their own, and
// seconds.
func (r *report) repeats() int { return max(1, min(r.rounds/6, 5)) }

// save writes all rows as JSON.
func (r *report) save(file string, m machine) error {
	var rows []record
	var tables []savedTable
	for _, t := range r.tables {
		rows, tables = append(rows, t.records()...), append(tables, t.saved())
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "\t")
	enc.SetEscapeHTML(false) // so that <= is not escaped
	if err := enc.Encode(struct {
		Machine machine      `json:"machine"`
		Rows    []record     `json:"rows"`
		Tables  []savedTable `json:"tables"` // the same rows, as they are printed
	}{m, rows, tables}); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// missed returns how many rows missed a target, and how many have one.
func (r *report) missed() (n, of int) {
	for _, t := range r.tables {
		for _, row := range t.Rows {
			if row.Target != "" {
				of++
			}
			if row.Missed {
				n++
			}
		}
	}
	return n, of
}

// errUsage is the error for a wrong command line; the message has been printed.
var errUsage = errors.New("usage")

func main() {
	if len(os.Args) == 3 && os.Args[1] == jobWord {
		os.Exit(serveJob(os.Args[2], os.Stdout, os.Stderr))
	}
	if len(os.Args) == 3 && os.Args[1] == bareWord {
		os.Exit(serveBare(os.Args[2], os.Stdin, os.Stdout, os.Stderr))
	}
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the program. A missed target is a result, not an error. An error means that something
// could not be measured.
func run(args []string, stdout, stderr io.Writer) error {
	r := &report{out: stdout}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&r.rounds, "rounds", 31, "how many rounds")
	flags.DurationVar(&r.round, "round", 20*time.Millisecond, "how long one subject runs in one round")
	flags.IntVar(&r.keys, "keys", 1_000_000, "how many keys; 10 and 100 times as many where the sections say so")
	file := flags.String("json", "", "write all rows to this `file` too")
	folder := flags.String("report", "", "measure nothing: write REPORT.md and its plots to this `folder`, from the JSON files that are named in place of sections")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: bench [-rounds N] [-round D] [-keys N] [-json FILE] [SECTION...]\n       bench -report FOLDER FILE.json...\n\nsections, all if none is named:")
		for _, s := range sections() {
			fmt.Fprintf(stderr, "  %-9s %s\n", s.name, s.about)
		}
		fmt.Fprintln(stderr)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return errUsage
	}
	if *folder != "" {
		return writeReport(*folder, flags.Args())
	}
	chosen, err := choose(flags.Args())
	if err == nil && (r.rounds < 1 || r.round <= 0) {
		err = fmt.Errorf("-rounds %d -round %v measures nothing: both must be above 0", r.rounds, r.round)
	}
	if err == nil && (r.keys < fewestKeys || r.keys > mostKeys) {
		err = fmt.Errorf("-keys %d: it must be from %d to %d", r.keys, fewestKeys, mostKeys)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return errUsage
	}
	m := thisMachine(r.rounds, r.round)
	m.print(stdout)
	for _, s := range chosen {
		r.section = s.name
		if err := s.run(r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if n, of := r.missed(); of > 0 {
		fmt.Fprintf(stdout, "\n%d of %d lines with a target missed it\n", n, of)
	}
	if *file != "" {
		return r.save(*file, m)
	}
	return nil
}

// choose returns the sections with the given names; all of them without names.
func choose(names []string) ([]section, error) {
	all := sections()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []section
	for _, name := range names {
		i := slices.IndexFunc(all, func(s section) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no section %q: -h lists them", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
