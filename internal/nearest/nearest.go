// Package nearest finds the known word closest to a misspelt one, for "did you mean" suggestions.
package nearest

// To returns the word among known that is closest to a misspelt one, or "" if none is close. The
// distance is the number of letters to insert, delete, replace or swap. A third of the word, but at
// least one letter, may be wrong. The first of equals wins.
func To(word string, known []string) string {
	best, least := "", max(len(word)/3, 1)+1
	for _, k := range known {
		if len(k) > 100 || len(word) > 100 {
			continue
		}
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the optimal string alignment distance.
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
