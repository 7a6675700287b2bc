package room

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/weirflow/weir/internal/regular"
)

// Secrets are the keys that sign tickets: the first signs, and all verify.
type Secrets struct{ keys [][]byte }

const (
	minSecret  = 32 // bytes
	maxSecrets = 8
	maxFile    = 64 << 10
)

// NewSecrets makes one random secret. Its tickets are invalid after a restart, and at other
// gateways.
func NewSecrets() Secrets {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails
	return Secrets{[][]byte{key}}
}

// ReadSecrets reads a file with one secret per line, of at least 32 bytes each: the first signs,
// all verify. Empty lines and lines that start with # are skipped. A file that every user of the
// machine may read is refused.
func ReadSecrets(path string) (Secrets, error) {
	f, err := regular.Open(path)
	if err != nil {
		return Secrets{}, fmt.Errorf("secret_file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return Secrets{}, fmt.Errorf("secret_file: %w", err)
	case info.Mode().Perm()&0o007 != 0:
		return Secrets{}, fmt.Errorf("secret_file: every user of this machine may use %s (mode %04o): run chmod 600 on it", path, info.Mode().Perm())
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
			return s, fmt.Errorf("line %d: a secret of %d bytes can be guessed, the minimum is %d: make one with openssl rand -hex 32", number, len(line), minSecret)
		case len(s.keys) == maxSecrets:
			return s, fmt.Errorf("line %d: more than %d secrets: remove the oldest", number, maxSecrets)
		}
		sum := sha256.Sum256(line)
		s.keys = append(s.keys, sum[:])
	}
	if len(s.keys) == 0 {
		return s, errors.New("the file has no secret: make one with openssl rand -hex 32")
	}
	return s, nil
}
