package weirhttp_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// Background workers in docs/go.md: see TestGoPageShowsTheExamples.

type job struct{ Tenant string }

func Example_backgroundWorkers() {
	jobs := make(chan job, 3)
	jobs <- job{"acme"}
	jobs <- job{"acme"}
	jobs <- job{"anna"}
	close(jobs)
	perTenant, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}, keyed.Options{})
	if err != nil {
		log.Fatal(err)
	}
	do := func(j job) { fmt.Println("does a job of", j.Tenant) }
	later := func(j job, after time.Duration) {
		fmt.Println("puts back a job of", j.Tenant, "for", after.Round(time.Hour))
	}
	//
	for job := range jobs {
		if d := perTenant.Take(job.Tenant, 1); !d.Allowed {
			later(job, d.RetryAfter)
			continue
		}
		do(job)
	}
	//
	fmt.Println(workEvenly(context.Background(), jobs, do))
	// Output:
	// does a job of acme
	// puts back a job of acme for 1h0m0s
	// does a job of anna
	// <nil>
}

func workEvenly(ctx context.Context, jobs <-chan job, do func(job)) error {
	all, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(50), Burst: 1}, weir.Named("jobs"))
	if err != nil {
		return err
	}
	for job := range jobs {
		if err := all.Wait(ctx, 1); err != nil {
			return err // the context has ended: the job was not begun
		}
		do(job)
	}
	return nil
}
