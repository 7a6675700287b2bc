package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// A share is the part of all keys that a limit with a roll_out is enforced for: keys whose hash is
// below a bound. The hash depends only on the limit's name and the key. So all nodes agree on the
// keys, a larger share contains all keys of a smaller one, and different limits select different
// keys.
type share struct {
	bound uint64 // in 2^-64 of all keys
	whole bool   // all keys
	rest  bool   // all other keys instead
}

// maxDecimals is how many decimals a share may have: it can be as small as a hundred-millionth of
// all keys.
const maxDecimals = 6

// parseRollOut parses a share as a policy file has it: 10%, 0.5%. An empty text means all keys.
func parseRollOut(text string) (*share, error) {
	if text == "" {
		return &share{whole: true}, nil
	}
	number, found := strings.CutSuffix(text, "%")
	whole, decimals, _ := strings.Cut(strings.TrimSpace(number), ".")
	if !found || !isDigits(whole) || decimals != "" && !isDigits(decimals) || strings.HasSuffix(number, ".") {
		return nil, fmt.Errorf("%q is not a share of the keys", text)
	}
	if len(decimals) > maxDecimals {
		return nil, fmt.Errorf("%q is finer than %d decimals", text, maxDecimals)
	}
	n, err := strconv.ParseUint(whole+decimals, 10, 64)
	of := uint64(100)
	for range decimals {
		of *= 10
	}
	switch {
	case err != nil || n > of:
		return nil, fmt.Errorf("%q is more than all keys", text)
	case n == of:
		return &share{whole: true}, nil
	}
	bound, _ := bits.Div64(n, 0, of)
	return &share{bound: bound}, nil
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// has reports whether a key belongs to the share.
func (s *share) has(name string, key []byte) bool {
	if s.whole {
		return !s.rest
	}
	var buf [maxKey + 128]byte
	b := append(buf[:0], name...) // a separator, since no name contains a 0
	b = append(append(b, 0), key...)
	sum := sha256.Sum256(b)
	return (binary.BigEndian.Uint64(sum[:]) < s.bound) != s.rest
}

// rollOut checks the share of keys that a limit is enforced for.
func (c *checker) rollOut(l *Limit) {
	if l.RollOut == "" {
		return
	}
	_, err := parseRollOut(l.RollOut)
	fix := "write one from 0% to 100%, like 10% or 0.5%"
	switch {
	case err != nil:
	case l.Shadow:
		err, fix = errors.New("a shadow limit is not enforced for any key"), "take shadow out, or roll_out"
	case len(l.Key) == 0:
		err, fix = errors.New("the limit has no key that could be in or out: it would be enforced for all or for none"), "add a key, or take roll_out out"
	default:
		return
	}
	c.wrong(err.Error(), fix, "limits", l.Name, "roll_out")
}
