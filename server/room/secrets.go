package room

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
)

// Secrets are the keys that tickets are signed with: the first signs, and all verify.
type Secrets struct{ keys [][]byte }

const (
	minSecret  = 32 // bytes of a line
	maxSecrets = 8
	maxFile    = 64 << 10
)

// NewSecrets makes one secret. Tickets that it signs are worth nothing after a restart, and at other gateways.
func NewSecrets() Secrets {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails
	return Secrets{[][]byte{key}}
}

// ReadSecrets reads a file of secrets, one a line, of at least 32 bytes: the first signs, all verify. Empty lines, and those that begin with #, do not
// count. A file that everybody on the machine may read is refused.
func ReadSecrets(path string) (Secrets, error) {
	f, err := os.Open(path)
	if err != nil {
		return Secrets{}, fmt.Errorf("secret_file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return Secrets{}, fmt.Errorf("secret_file: %w", err)
	case !info.Mode().IsRegular():
		return Secrets{}, fmt.Errorf("secret_file: %s is not a file", path)
	case info.Mode().Perm()&0o007 != 0:
		return Secrets{}, fmt.Errorf("secret_file: everybody on this machine may use %s (its mode is %04o): chmod 600, or 640", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Secrets{}, fmt.Errorf("secret_file: %w", err)
	}
	if len(data) > maxFile {
		return Secrets{}, fmt.Errorf("secret_file: %s is larger than %d bytes", path, maxFile)
	}
	s, err := parseSecrets(data)
	if err != nil {
		return Secrets{}, fmt.Errorf("secret_file: %s: %w", path, err)
	}
	return s, nil
}

func parseSecrets(data []byte) (s Secrets, err error) {
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 || line[0] == '#':
			continue
		case len(line) < minSecret:
			return s, fmt.Errorf("line %d: a secret of %d bytes can be guessed: write at least %d, as by: openssl rand -hex 32", number, len(line), minSecret)
		case len(s.keys) == maxSecrets:
			return s, fmt.Errorf("line %d: there are more than %d secrets: take the oldest out", number, maxSecrets)
		}
		sum := sha256.Sum256(line)
		s.keys = append(s.keys, sum[:])
	}
	if len(s.keys) == 0 {
		return s, errors.New("there is no secret in it: write one, as by: openssl rand -hex 32")
	}
	return s, nil
}
