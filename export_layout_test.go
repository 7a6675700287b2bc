package weir

// String names the type of a Layout.
func (l *Layout) String() string {
	switch {
	case l.bucket != nil:
		return "a word, a bucket"
	case l.word != nil:
		return "a word"
	}
	return "words"
}
