// Package rediserror says of the error of a call to Redis whether the call may be repeated.
package rediserror

import (
	"context"
	"errors"
	"strings"
)

// Refused reports whether the server did nothing, and would do it a little later: it is busy with
// something else, or another server has become the master.
func Refused(text string) bool {
	for _, p := range []string{"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "MOVED", "ASK", "NOREPLICAS"} {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

// Lost reports whether an error is not the server's: the call may have been carried out.
func Lost(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true // whether there is time for another attempt is seen there
	}
	code, _, _ := strings.Cut(err.Error(), " ")
	// errors of the server begin with a word in capitals
	return code != strings.ToUpper(code) || code == "EOF"
}

// Passing reports whether an error may be gone when the call is repeated.
func Passing(err error) bool { return Refused(err.Error()) || Lost(err) }
