package weirplot

import (
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
)

// wholeTicks are ticks whose labels are whole numbers.
type wholeTicks struct{}

func (wholeTicks) Ticks(least, most float64) (ticks []plot.Tick) {
	for _, t := range (plot.DefaultTicks{}).Ticks(least, most) {
		if t.Label != "" {
			t.Label = strconv.FormatFloat(t.Value, 'f', -1, 64)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// clockTicks are ticks at round times of UTC, for values in seconds since 1970.
type clockTicks struct{}

// mostTicks is how many labels fit.
const mostTicks = 8

const day = 24 * time.Hour

var tickSteps = [...]time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, day}

func (clockTicks) Ticks(least, most float64) (ticks []plot.Tick) {
	step := tickSteps[len(tickSteps)-1]
	for _, s := range tickSteps {
		if (most-least)/s.Seconds() <= mostTicks {
			step = s
			break
		}
	}
	for (most-least)/step.Seconds() > mostTicks {
		step *= 2
	}
	form := "2006-01-02"
	switch several := math.Floor(least/day.Seconds()) != math.Floor(most/day.Seconds()); {
	case step < time.Minute:
		form = "15:04:05"
	case step < day && several:
		form = "15:04\n2006-01-02"
	case step < day:
		form = "15:04"
	}
	for n := math.Ceil(least / step.Seconds()); n*step.Seconds() <= most; n++ {
		at := n * step.Seconds()
		ticks = append(ticks, plot.Tick{Value: at, Label: time.Unix(int64(at), 0).UTC().Format(form)})
	}
	return ticks
}
