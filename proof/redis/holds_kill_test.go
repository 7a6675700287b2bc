package redis

import (
	"bufio"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
)

// A stay is a time in which a holder was sure of its place: from when it had entered to the last
// time at which it checked.
type stay struct {
	process     string
	fence       int64
	since, till int64
}

// holderEnv is the server's address, for a process that only enters and leaves.
const (
	holderEnv  = "WEIR_TEST_HOLDER"
	holderName = "WEIR_TEST_HOLDER_NAME" // the seed of its random numbers
)

var contested = weir.Concurrency{Limit: 3, Queue: 20, MaxHold: 400 * time.Millisecond}

// TestHolderProcess runs in the processes of TestKilledHolders: two goroutines enter, stay for a
// while, and leave, until the process is killed. Each reports when it was sure of its place.
func TestHolderProcess(t *testing.T) {
	addr := os.Getenv(holderEnv)
	if addr == "" {
		t.Skip("this runs in the processes of TestKilledHolders")
	}
	c := gate(t, connect(t, addr), contested, weirredis.Options{Timeout: 200 * time.Millisecond})
	seen := make(chan stay)
	random := seeds.Of(os.Getenv(holderName))
	for range 2 {
		go func() {
			for {
				h, err := c.Enter(t.Context(), "k")
				if err != nil {
					continue
				}
				stays(h, random, seen)
				h.Done(weir.OK)
			}
		}()
	}
	for s := range seen {
		fmt.Fprintf(os.Stdout, "stay %d %d %d\n", s.fence, s.since, s.till)
	}
}

// stays holds a place for a while, mostly a short one, and reports when it was sure of it.
func stays(h weirredis.Hold, random *rand.Rand, seen chan<- stay) {
	long := time.Duration(random.Int64N(int64(30 * time.Millisecond)))
	if random.IntN(3) == 0 {
		long = time.Duration(random.Int64N(int64(4 * contested.MaxHold)))
	}
	pulse := time.NewTicker(time.Millisecond)
	defer pulse.Stop()
	for began := time.Now(); time.Since(began) < long; <-pulse.C {
		now := time.Now()
		if !h.Held() {
			return
		}
		seen <- stay{fence: h.Fence(), since: began.UnixNano(), till: now.UnixNano()}
	}
}

// TestKilledHolders: processes that enter and leave are killed, or stopped for longer than MaxHold,
// at random. At no time are more holders sure of a place than there are places, no two holds have
// the same fence, and places come back.
func TestKilledHolders(t *testing.T) {
	addr := servers.StartRedis(t, servers.RedisOptions{}).Addr
	all := make(chan stay, 1000)
	var running []*exec.Cmd
	ended, launched, random := make(chan struct{}), 0, seeds.Of(t.Name())
	launch := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHolderProcess$")
		launched++
		cmd.Env = append(os.Environ(), holderEnv+"="+addr, fmt.Sprintf("%s=%s %d", holderName, t.Name(), launched))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			process := strconv.Itoa(cmd.Process.Pid)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				s := stay{process: process}
				if n, _ := fmt.Sscanf(lines.Text(), "stay %d %d %d", &s.fence, &s.since, &s.till); n == 3 {
					all <- s
				}
			}
			cmd.Wait()
			ended <- struct{}{}
		}()
		return cmd
	}
	for range 6 {
		running = append(running, launch())
	}
	stays := map[int64]stay{}
	const least = 20 // holds, for a test of anything
	began := time.Now()
	enough := func() bool { // a busy machine takes longer to get there
		lasted := time.Since(began)
		return lasted > 6*time.Second && len(stays) >= least && atOnce(stays) >= 2 || lasted > 4*patience
	}
	mischief := time.NewTicker(250 * time.Millisecond)
	defer mischief.Stop()
	for living := len(running); living > 0; {
		select {
		case s := <-all:
			if before, ok := stays[s.fence]; ok && (before.process != s.process || before.since != s.since) {
				t.Fatalf("two holds have the fence %d: %v, %v", s.fence, before, s)
			}
			stays[s.fence] = s
		case <-mischief.C:
			i := random.IntN(len(running))
			switch {
			case enough():
				for _, cmd := range running {
					cmd.Process.Kill()
				}
			case random.IntN(3) > 0:
				process := running[i].Process
				process.Signal(syscall.SIGSTOP)
				time.AfterFunc(time.Duration(random.Int64N(int64(4*contested.MaxHold))), func() { process.Signal(syscall.SIGCONT) })
			default:
				running[i].Process.Kill()
				running[i] = launch()
				living++
			}
		case <-ended:
			living--
		}
	}
	together := atOnce(stays)
	t.Logf("%d holds, %d at once", len(stays), together)
	if together > int(contested.Limit) || together < 2 || len(stays) < least {
		t.Errorf("%d holds were sure of %d places at once; %d holds", together, contested.Limit, len(stays))
	}
}

// atOnce returns the largest number of stays at one time.
func atOnce(stays map[int64]stay) (most int) {
	type change struct {
		at int64
		by int
	}
	var changes []change
	for _, s := range stays {
		changes = append(changes, change{s.since, 1}, change{s.till, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now := 0
	for _, c := range changes {
		now += c.by
		most = max(most, now)
	}
	return most
}
