package rediserror

import (
	"context"
	"errors"
	"io"
	"testing"
)

func TestPassing(t *testing.T) {
	for _, c := range []struct {
		err           error
		refused, lost bool
	}{
		{io.EOF, false, true},
		{errors.New("dial tcp 127.0.0.1:6379: connect: connection refused"), false, true},
		{context.DeadlineExceeded, false, true},
		{errors.New("LOADING Redis is loading the dataset in memory"), true, false},
		{errors.New("READONLY You can't write against a read only replica."), true, false},
		{errors.New("WRONGTYPE Operation against a key holding the wrong kind of value"), false, false},
		{errors.New("NOSCRIPT No matching script."), false, false},
		{errors.New("ERR unknown command"), false, false},
	} {
		if Refused(c.err.Error()) != c.refused || Lost(c.err) != c.lost || Passing(c.err) != (c.refused || c.lost) {
			t.Errorf("%v: refused %v, lost %v, passing %v", c.err, Refused(c.err.Error()), Lost(c.err), Passing(c.err))
		}
	}
}
