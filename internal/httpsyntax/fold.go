package httpsyntax

// FoldName returns the name that upstreams may see for a header field: CGI, WSGI and FastCGI turn
// every byte but letters and digits into an underscore, and ignore case. Fields with equal folded
// names are one field to them. The result has dashes, and lower-case letters.
func FoldName(name string) string {
	folded := []byte(name)
	for i, c := range folded {
		switch {
		case c >= 'A' && c <= 'Z':
			folded[i] = c + 'a' - 'A'
		case !isAlphanumeric(c):
			folded[i] = '-'
		}
	}
	return string(folded)
}

// IsUsualName reports whether a name has only letters, digits and dashes. Such a name is folded to
// itself, apart from case.
func IsUsualName(name string) bool { return all(name, isUsual) }

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
