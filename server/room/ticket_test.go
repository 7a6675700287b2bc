package room

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func secrets(t testing.TB, lines ...string) Secrets {
	t.Helper()
	s, err := parseSecrets([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const (
	secretA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	secretB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestTickets(t *testing.T) {
	sale := signer{"sale", secrets(t, secretA)}
	want := ticket{state: WaitingTicket, provisional: true, id: newID(), place: 7, sessionEnd: 8, started: 9, made: 10, expires: 100, firstAhead: 11, trustedUntil: 12}
	text := sale.sign(want, "a client")
	if got, err := sale.verify(text, "a client", 99); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	rotated := signer{"sale", secrets(t, secretB, secretA)}
	if got, err := rotated.verify(text, "a client", 99); err != nil || got != want {
		t.Errorf("with another secret in front: %+v, %v", got, err)
	}
	if _, err := rotated.verify(rotated.sign(want, "a client"), "a client", 99); err != nil {
		t.Errorf("%v", err)
	}
	for name, c := range map[string]struct {
		by     signer
		text   string
		client string
		now    int64
		want   error
	}{
		"another client":     {sale, text, "another client", 99, errClient},
		"too old":            {sale, text, "a client", 100, errExpired},
		"another room":       {signer{"sales", sale.Secrets}, text, "a client", 99, errForged},
		"another secret":     {signer{"sale", secrets(t, secretB)}, text, "a client", 99, errForged},
		"nothing":            {sale, "", "a client", 99, errForged},
		"a part":             {sale, text[:len(text)-1], "a client", 99, errForged},
		"more":               {sale, text + "A", "a client", 99, errForged},
		"very much":          {sale, strings.Repeat("A", 1<<20), "a client", 99, errForged},
		"not base64":         {sale, "!" + text[1:], "a client", 99, errForged},
		"a line end":         {sale, text + "\n", "a client", 99, errForged},
		"a secret taken out": {signer{"sale", secrets(t, secretB)}, rotated.sign(want, "x")[:20] + text[20:], "a client", 99, errForged},
	} {
		if _, err := c.by.verify(c.text, c.client, c.now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for i := range len(text) { // every letter counts
		changed := []byte(text)
		if changed[i] == 'A' {
			changed[i] = 'B'
		} else {
			changed[i] = 'A'
		}
		if got, err := sale.verify(string(changed), "a client", 99); err == nil {
			t.Errorf("with letter %d changed: %+v", i, got)
		}
	}
}

// FuzzTicket: only signed tickets are valid.
func FuzzTicket(f *testing.F) {
	s := signer{"sale", secrets(f, secretA)}
	text := s.sign(ticket{state: WaitingTicket, id: "AAAAAAAAAAAAAAAAAAAAAA", expires: 100}, "")
	f.Add(text)
	f.Fuzz(func(t *testing.T, given string) {
		if got, err := s.verify(given, "", 0); err == nil && given != text {
			t.Errorf("%q is a ticket: %+v", given, got)
		}
	})
}

func TestSecretFiles(t *testing.T) {
	write := func(text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s, err := ReadSecrets(write("# made in spring\n\n"+secretB+"\r\n"+secretA, 0o640))
	if err != nil || len(s.keys) != 2 {
		t.Fatalf("%d secrets, %v", len(s.keys), err)
	}
	if text := (signer{"r", s}).sign(ticket{state: WaitingTicket, id: newID(), expires: 1}, ""); text == "" {
		t.Error("no ticket")
	} else if _, err := (signer{"r", secrets(t, secretB)}).verify(text, "", 0); err != nil {
		t.Errorf("the first secret does not sign: %v", err)
	}
	for path, want := range map[string]string{
		write(secretA, 0o644):                         "chmod 600",
		write("short\n", 0o600):                       "line 1: a secret of 5 bytes",
		write("", 0o600):                              "no secret",
		write(strings.Repeat(secretA+"\n", 9), 0o600): "line 9: more than 8 secrets",
		write(strings.Repeat("#\n", 1<<16), 0o600):    "larger than",
		t.TempDir():                                   "not a regular file",
		filepath.Join(t.TempDir(), "nothing"):         "no such file",
	} {
		if _, err := ReadSecrets(path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secretA) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
