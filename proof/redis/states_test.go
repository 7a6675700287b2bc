package redis

import (
	encodinghex "encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
)

// the name of the file in testdata to write states of the present format to
var recordStates = flag.String("record-states", "", "write testdata/states-NAME.json: see TestStatesOfEarlierFormats")

// recorded is a state as a store once wrote it, and its meaning.
type recorded struct {
	Case    string // a name in recordedCases
	State   string // the value of the key, in hexadecimal digits
	Receipt string // of one of the charges, in hexadecimal digits
	Left    string // the results of a Peek then, and at three later times
	Settled string // and of one after the receipt was settled for 1
}

// recordedCases are the limits whose states are recorded. A case is never changed or removed,
// because files of earlier formats refer to it.
var recordedCases = map[string][]weir.Limit{
	"token bucket":          {weir.TokenBucket{Rate: weir.PerSecond(333), Burst: 500}},
	"token bucket, initial": {weir.TokenBucket{Rate: weir.PerMinute(7), Burst: 50, Initial: 40}},
	"leaky bucket":          {weir.LeakyBucket{Rate: weir.PerMinute(7), Queue: 50, DelayAfter: 9}},
	"smooth bursty":         {weir.SmoothBursty{Rate: weir.PerSecond(5), MaxBurst: 10 * time.Second}},
	"interval bucket":       {weir.IntervalBucket{Burst: 50, Refill: 7, Every: time.Second}},
	"fixed window":          {weir.FixedWindow{Limit: 50, Window: time.Minute}},
	"fixed window, first":   {weir.FixedWindow{Limit: 50, Window: time.Minute, Align: weir.AlignFirst}},
	"fixed window, dates":   {weir.FixedWindow{Limit: 50, Align: "day:Europe/Berlin"}},
	"sliding window":        {weir.SlidingWindow{Limit: 50, Window: time.Minute, Slots: 6, SlotLimit: 30}},
	"sliding counter":       {weir.SlidingCounter{Limit: 50, Window: time.Minute}},
	"sliding log":           {weir.SlidingLog{Limit: 50, Window: time.Minute}},
	"warm up":               {weir.WarmUp{Rate: weir.PerSecond(333), Period: 10 * time.Second}},
	"all": {weir.All(
		weir.TokenBucket{Rate: weir.PerSecond(3), Burst: 50}, weir.FixedWindow{Limit: 60, Window: time.Minute}, weir.SlidingLog{Limit: 90, Window: time.Hour},
	)},
	"two versions": {weir.FixedWindow{Limit: 50, Window: time.Minute}, weir.SlidingLog{Limit: 40, Window: time.Second}},
}

// TestStatesOfEarlierFormats reads the states and receipts of each format that was ever released, as
// recorded in testdata/states-*.json: they mean what they meant.
//
// When the format of a state or of a receipt changes, add a case to recordedCases if there is
// something new, run
//
//	go test ./redis -run TestStatesOfEarlierFormats -record-states VERSION
//
// in this module, and commit the new file. Files that are there are never written again.
func TestStatesOfEarlierFormats(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	const begin = 1_700_000_000 * time.Second
	charge := func(limits []weir.Limit, c weir.Charge) done {
		c.Name, c.Key = "api", "a"
		if c.Limit == nil {
			c.Limit = limits[0]
		}
		return do(t, store, c)
	}
	left := func(limits []weir.Limit, at ...time.Duration) string {
		var said []string
		for _, at := range at {
			clockAt(t, client, begin+at)
			d := charge(limits, weir.Charge{Cost: 20, Op: weir.OpPeek}).decision
			said = append(said, fmt.Sprintf("%d left, retry %v, reset %v", d.Remaining, d.RetryAfter, d.ResetAfter))
		}
		return strings.Join(said, "; ")
	}
	// meaning is what Peek returns for a state, and what its receipt gives back.
	meaning := func(r *recorded) (lefts, settled string) {
		limits := recordedCases[r.Case]
		if limits == nil {
			t.Fatalf("%q is no case any more", r.Case)
		}
		state, err := encodinghex.DecodeString(r.State)
		if err != nil {
			t.Fatal(err)
		}
		receipt, err := encodinghex.DecodeString(r.Receipt)
		if err != nil {
			t.Fatal(err)
		}
		redis(t, client, "SET", at("a"), string(state))
		lefts = left(limits, 200*time.Millisecond, time.Second, 11*time.Second, time.Hour)
		clockAt(t, client, begin+200*time.Millisecond)
		charge(limits, weir.Charge{Op: weir.OpSettle, Cost: 1, Receipt: weir.Receipt(receipt)})
		return lefts, left(limits, 200*time.Millisecond)
	}
	if *recordStates != "" {
		var all []recorded
		for name, limits := range recordedCases {
			redis(t, client, "DEL", at("a"))
			clockAt(t, client, begin)
			for _, l := range limits {
				charge(limits, weir.Charge{Limit: l, Cost: 11})
			}
			clockAt(t, client, begin+100*time.Millisecond)
			made := charge(limits, weir.Charge{Cost: 9, Op: weir.OpReserve, Within: -1})
			r := recorded{Case: name, State: encodinghex.EncodeToString([]byte(redis(t, client, "GET", at("a")).(string))), Receipt: encodinghex.EncodeToString([]byte(made.Receipt))}
			r.Left, r.Settled = meaning(&r)
			all = append(all, r)
		}
		sort.Slice(all, func(i, j int) bool { return all[i].Case < all[j].Case })
		text, err := json.MarshalIndent(all, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join("testdata", "states-"+*recordStates+".json"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(append(text, '\n')); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/states-*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of recorded states, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all []recorded
		if err := json.Unmarshal(text, &all); err != nil || len(all) == 0 {
			t.Fatalf("%s: %d states, %v", file, len(all), err)
		}
		for _, r := range all {
			if lefts, settled := meaning(&r); lefts != r.Left || settled != r.Settled {
				t.Errorf("%s, %s:\nit meant %s\nsettled  %s\nnow      %s\nsettled  %s", file, r.Case, r.Left, r.Settled, lefts, settled)
			}
		}
	}
}
