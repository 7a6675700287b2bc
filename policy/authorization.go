package policy

import (
	"encoding/base64"
	"strings"
)

// CanonicalAuthorization returns a value of the field Authorization in the one form in which it is a
// key: the scheme in lower case, one space, and the credentials as they are. Upstreams take "Bearer k",
// "bearer k" and "Bearer  k" for the same, and each would have a counter of its own. A value of a
// single word may be credentials without a scheme, and stays as it is.
//
// Basic credentials in any other form than base64 with padding (RFC 7617) share one key, and so do
// tokens that differ in a signature which is no base64url (RFC 7515): most decoders skip characters
// that do not belong there, so clients could write both in any number of ways.
func CanonicalAuthorization(value string) string {
	value = trimBlanks(value)
	i := 0
	for i < len(value) && !isBlank(value[i]) {
		i++
	}
	if i == len(value) {
		return value
	}
	scheme, credentials := strings.ToLower(value[:i]), trimBlanks(value[i:])
	switch {
	case scheme == "basic" && !isCanonical(base64.StdEncoding, credentials):
		credentials = ""
	case scheme == "bearer" && looksLikeJWT(credentials):
		if dot := strings.LastIndexByte(credentials, '.'); !isCanonical(base64.RawURLEncoding, credentials[dot+1:]) {
			credentials = credentials[:dot]
		}
	}
	return scheme + " " + credentials
}

// isBlank reports whether upstreams may take a byte for a blank: of Latin-1, as which Python and Node
// read header fields, two are beyond ASCII.
func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == 0x85 || c == 0xa0 }

func trimBlanks(s string) string {
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// isCanonical reports whether a text is what an encoder writes.
func isCanonical(encoding *base64.Encoding, text string) bool {
	var from, to [longestEncoded]byte
	if len(text) > len(from) || strings.ContainsAny(text, "\r\n") {
		return false
	}
	n, err := encoding.Strict().Decode(to[:], from[:copy(from[:], text)])
	return err == nil && n > 0
}

// longestEncoded is the longest text that isCanonical accepts: more than the signature of any key, or
// a user name and a password.
const longestEncoded = 1024

// canonicalHeader returns a value of a header field, whose name is in canonical form, as a key has it.
func canonicalHeader(name, value string) string {
	if name == "Authorization" {
		return CanonicalAuthorization(value)
	}
	return value
}
