package room

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseStanding parses the reply of a store's script: State, Place, Ahead, Waiting, Inside, Counted, Span, End, Started,
// Now, Entered, Lapsed, Missed and Left, as whole numbers with spaces between them.
func ParseStanding(text string) (Standing, error) {
	words := strings.Fields(text)
	if len(words) != 14 {
		return Standing{}, errors.New("room: the reply of the script is not understood")
	}
	var n [14]int64
	for i, w := range words {
		v, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return Standing{}, fmt.Errorf("room: the reply of the script: %w", err)
		}
		n[i] = v
	}
	if n[0] < 0 || n[0] > int64(Full) {
		return Standing{}, errors.New("room: the reply of the script has a state that is not known")
	}
	return Standing{
		State: State(n[0]), Place: n[1], Ahead: n[2], Waiting: n[3], Inside: n[4], Counted: n[5], Span: n[6], End: n[7], Started: n[8], Now: n[9],
		Entered: n[10] == 1, Lapsed: n[11], Missed: n[12], Left: n[13],
	}, nil
}
