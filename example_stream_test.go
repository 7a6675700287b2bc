package weir_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/weirflow/weir"
)

// Poll a hundred times a second, until the context ends.
func ExampleLimiter_Pace() {
	l, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 1})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i, err := range l.Pace(ctx, 1) {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println("poll", i)
		if i == 2 {
			cancel()
		}
	}
	// Output:
	// poll 0
	// poll 1
	// poll 2
	// context canceled
}

func ExampleLimiter_Do() {
	l, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10})
	err := l.Do(context.Background(), 3, func(context.Context) error {
		fmt.Println("three units of work")
		return nil
	})
	fmt.Println(err)
	// Output:
	// three units of work
	// <nil>
}

// A download at 1 MB/s, with bursts of 64 kB.
func ExampleNewReader() {
	l, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(1_000_000), Burst: 64_000})
	body := strings.NewReader(strings.Repeat("x", 100_000))

	start := time.Now()
	n, err := io.Copy(io.Discard, weir.NewReader(context.Background(), body, l))
	fmt.Println(n, err, time.Since(start) >= 36*time.Millisecond)
	// Output: 100000 <nil> true
}

func ExampleNewWriter() {
	l, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(1_000_000), Burst: 64_000})
	var out bytes.Buffer
	n, err := weir.NewWriter(context.Background(), &out, l).Write(make([]byte, 70_000))
	fmt.Println(n, err, out.Len())
	// Output: 70000 <nil> 70000
}

// All connections of a server together send at most 10 MB/s. Reading is not limited.
func ExampleNewConn() {
	l, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(10_000_000), Burst: 64_000})
	serve := func(c net.Conn) {
		c = weir.NewConn(c, nil, l)
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute)) // a wait for the rate counts towards the deadline
		fmt.Fprintln(c, "hello")
	}

	server, client := net.Pipe()
	go serve(server)
	text, err := io.ReadAll(client)
	fmt.Printf("%q %v\n", text, err)
	// Output: "hello\n" <nil>
}
