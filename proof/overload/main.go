// Overload puts real services, each of them short of something else, under three times the load that they
// can bear, without Weir and behind weir serve with adaptive: {}, and prints the table of docs/adaptive.md:
//
//	go run ./proof/overload
//
// With names of rows it measures those. The machine should have nothing else to do.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// The variables of the environment that make a process of this program a service.
const (
	serveVariable = "WEIR_PROOF_OVERLOAD"
	dirVariable   = "WEIR_PROOF_OVERLOAD_DIR"
)

func main() {
	if name := os.Getenv(serveVariable); name != "" {
		fmt.Fprintln(os.Stderr, serve(name))
		os.Exit(1)
	}
	seconds := flag.Int("seconds", 15, "how long each overload lasts")
	flag.Parse()
	if err := table(os.Stdout, flag.Args(), time.Duration(*seconds)*time.Second); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// table measures the kinds with these names, or all, and prints the table.
func table(to io.Writer, names []string, during time.Duration) error {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := servers.BuildWeir(context.Background(), dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(to, "Load of the machine before and after each row, of the last minute.\n\n")
	fmt.Fprintln(to, "| service | | capacity | unloaded p50, p99 | 1x: served | p99 | 3x: served | p50, p99 | refused | gave up | recovery | important | memory | load |")
	fmt.Fprintln(to, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, k := range kinds {
		if len(names) > 0 && !slices.Contains(names, k.name) {
			continue
		}
		for _, adaptive := range []string{"", "{}", lowInitial} {
			if adaptive == lowInitial && !k.few {
				continue
			}
			before := machineLoad()
			m, err := measure(k, dir, binary, adaptive, during)
			if err != nil {
				return err
			}
			with := "without Weir"
			if adaptive != "" {
				with = "`adaptive: " + adaptive + "`"
			}
			fmt.Fprintf(to, "| %s | %s | %.0f/s | %s, %s | %s | %s | %s | %s, %s | %s | %s | %.1f s | %.2f %% | %d MiB | %s, %s |\n", k.name, with, m.most,
				ms(m.unloaded.p50), ms(m.unloaded.p99), percent(m.full.rate/m.most), ms(m.full.p99), percent(m.over.rate/m.most),
				ms(m.over.p50), ms(m.over.p99), percent(m.over.refused), percent(m.over.gaveUp), m.recovery.Seconds(), 100*m.mixed.important, m.memory>>20, before, machineLoad())
		}
	}
	return nil
}

func percent(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/1e6) }

// machineLoad is the load average of the last minute.
func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}

// A measurement is what became of the requests of a service.
type measurement struct {
	most     float64 // requests per second that it can do
	unloaded summary
	full     summary // at its capacity
	over     summary // at three times its capacity
	mixed    summary // the same, where half the capacity is asked for by important requests
	recovery time.Duration
	memory   int // the most that the service has had, in bytes
}

// lowInitial is the adaptive limit of a service that works at very few requests at once.
const lowInitial = "{ knee: { initial: 2 } }"

// measure starts a service of a kind, and puts it under load: behind a gateway with an adaptive limit, or
// alone if adaptive is empty. binary is the path of the weir command.
func measure(k kind, dir, binary, adaptive string, during time.Duration) (m measurement, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), servers.Patience)
	defer cancel()
	s, addr, err := start(ctx, k, dir)
	if err != nil {
		return m, err
	}
	defer s.Kill()
	front := addr
	if adaptive != "" {
		w, err := gateway(ctx, binary, dir, addr, adaptive)
		if err != nil {
			return m, err
		}
		defer w.Stop() //nolint:errcheck // the measurement is over
		front = w.Gateway
	}
	direct := newClient(addr)
	m.most = most(direct, 2*k.places, max(during/5, time.Second))
	direct.close()
	c := newClient(front)
	defer c.close()
	// what is learnt at first is not counted
	settled := during / 3
	m.unloaded = summaryOf(load{rate: m.most / 10, during: during / 2}.run(c), 0, during/2)
	m.full = summaryOf(load{rate: m.most, during: during / 2}.run(c), settled/2, during/2)
	m.over = summaryOf(load{rate: 3 * m.most, during: during}.run(c), settled, during)
	slow := 2*m.unloaded.p99 + 10*time.Millisecond
	// the last requests of the overload had a second to give up, which is part of the recovery
	m.recovery = recovery(load{rate: m.most / 2, during: during}.run(c), during, slow)
	if m.recovery > 0 {
		m.recovery += patience
	}
	m.mixed = summaryOf(load{rate: 3 * m.most, during: during, important: 6}.run(c), settled, during)
	m.memory, err = mostMemory(s.Pid())
	return m, err
}

// mostMemory reads from Linux's /proc how much memory a process has had at most.
func mostMemory(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	var kilobytes int
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	_, err = fmt.Sscan(rest, &kilobytes)
	return kilobytes << 10, err
}

// start starts the service of a kind in a process of its own.
func start(ctx context.Context, k kind, dir string) (*servers.Process, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveVariable+"="+k.name, dirVariable+"="+dir)
	var addr string
	p, err := servers.Start(ctx, cmd, func(output string) bool {
		_, rest, found := strings.Cut(output, "listening on ")
		line, _, whole := strings.Cut(rest, "\n")
		addr = line
		return found && whole
	})
	return p, addr, err
}

// policy is what protects the service.
const policy = `listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
trusted_proxies: [127.0.0.1]
priorities: { header: X-Priority }
upstreams:
  app: { url: "http://%s", adaptive: %s }
routes:
  - { match: /, upstream: app }
`

func gateway(ctx context.Context, binary, dir, addr, adaptive string) (*servers.Weir, error) {
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, policy, addr, adaptive), 0o600); err != nil {
		return nil, err
	}
	return servers.StartWeir(ctx, binary, file)
}
