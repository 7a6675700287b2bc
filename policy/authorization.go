package policy

import "strings"

// CanonicalAuthorization returns a value of the field Authorization in the one form in which it is a
// key: the scheme in lower case, one space, and the credentials as they are. Upstreams take "Bearer k",
// "bearer k" and "Bearer  k" for the same, and each would have a counter of its own. A value of a
// single word may be credentials without a scheme, and stays as it is.
func CanonicalAuthorization(value string) string {
	const blanks = " \t"
	value = strings.Trim(value, blanks)
	i := strings.IndexAny(value, blanks)
	if i < 0 {
		return value
	}
	scheme, credentials := strings.ToLower(value[:i]), strings.TrimLeft(value[i:], blanks)
	return scheme + " " + credentials
}

// canonicalHeader returns a value of a header field, whose name is in canonical form, as a key has it.
func canonicalHeader(name, value string) string {
	if name == "Authorization" {
		return CanonicalAuthorization(value)
	}
	return value
}
