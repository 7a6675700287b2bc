package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// servers are the running servers that a command talks to, by their addresses.
type servers struct {
	at        listener
	addresses []string
	tokenFile string
	caFile    string

	token  string
	client *http.Client
}

// Bounds on the duration and the size of a response.
const (
	adminTime = 30 * time.Second
	maxAnswer = 64 << 20
)

// A listener is the word below listen in a policy file for the addresses that a command talks to.
type listener string

// The listeners of commands. The zero value is listen.admin.
const (
	atAdmin listener = ""
	atHTTP  listener = "http"
)

// name is the word below listen, and the flag for its addresses.
func (l listener) name() string { return cmp.Or(string(l), "admin") }

// variable is the environment variable in place of the flag. Several addresses are separated by commas.
func (l listener) variable() string {
	if l == atHTTP {
		return "WEIR_HTTP"
	}
	return "WEIR_ADMIN"
}

// tokenVariable is the environment variable for the file with the token.
func (l listener) tokenVariable() string {
	if l == atHTTP {
		return "WEIR_HTTP_TOKEN_FILE"
	}
	return "WEIR_TOKEN_FILE"
}

// address is where the server is without a flag and a variable.
func (l listener) address() string {
	if l == atHTTP {
		return "http://127.0.0.1:8082"
	}
	return "http://127.0.0.1:9090"
}

// tokens is where a policy file names the tokens.
func (l listener) tokens() string {
	if l == atHTTP {
		return "listen.http.tokens"
	}
	return "admin.token_file"
}

// flags adds the flags of every command that talks to servers.
func (s *servers) flags(c *cobra.Command) {
	at := s.at
	c.Flags().StringSliceVar(&s.addresses, at.name(), nil, "the server's address of listen."+at.name()+"; repeat it for several servers; default: $"+at.variable()+", or "+at.address())
	c.Flags().StringVar(&s.tokenFile, "token-file", "", "a file with a token of "+at.tokens()+"; default: $"+at.tokenVariable())
	c.Flags().StringVar(&s.caFile, "ca", "", "a PEM file with the authorities that sign the server's certificate; default: the system's")
}

// open prepares the HTTP client.
func (s *servers) open() error {
	if len(s.addresses) == 0 {
		s.addresses = strings.Split(cmp.Or(os.Getenv(s.at.variable()), s.at.address()), ",")
	}
	s.tokenFile = cmp.Or(s.tokenFile, os.Getenv(s.at.tokenVariable()))
	transport := &http.Transport{Proxy: nil}
	if s.caFile != "" {
		pem, err := os.ReadFile(s.caFile)
		if err != nil {
			return fileError(err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return &usageError{fmt.Errorf("--ca %s: the file has no certificate in PEM", s.caFile)}
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	if s.tokenFile != "" {
		text, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return fileError(err)
		}
		s.token = strings.TrimSpace(string(text))
	}
	for i, a := range s.addresses {
		if !strings.Contains(a, "://") { // as in the policy file
			a = "http://" + a
		}
		u, err := url.Parse(a)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" {
			return &usageError{fmt.Errorf("--%s %s: write it like %s", s.at.name(), a, s.at.address())}
		}
		s.addresses[i] = strings.TrimSuffix(a, "/")
	}
	s.client = &http.Client{
		Timeout:   adminTime,
		Transport: transport,
		// a redirect must not carry the token elsewhere
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

// each calls do for every server. An error of one server is printed, and the others are called
// nevertheless.
func (s *servers) each(cmd *cobra.Command, do func(address string) error) error {
	if err := s.open(); err != nil {
		return err
	}
	defer s.client.CloseIdleConnections()
	failed := false
	for _, a := range s.addresses {
		if err := do(a); err != nil {
			cmd.PrintErrf("weir: %s: %v\n", a, err)
			failed = true
		}
	}
	if failed {
		return errReported
	}
	return nil
}

// refused is an error response of a server (RFC 9457).
type refused struct {
	Title    string `json:"title"`
	Detail   string `json:"detail"`
	Fix      string `json:"fix"`
	File     string `json:"file"` // the server's policy file, if that is what is wrong
	Problems []struct {
		Line    int    `json:"line"`
		Column  int    `json:"column"`
		Message string `json:"message"`
		Fix     string `json:"fix"`
		Warning bool   `json:"warning"`
	} `json:"problems"`
	file string
}

// Error has a line for each problem of a policy, in the format of weir check.
func (r *refused) Error() string {
	text := cmp.Or(r.Detail, r.Title)
	if r.Fix != "" {
		text += ": " + r.Fix
	}
	if r.File != "" && len(r.Problems) == 0 {
		text = r.File + ": " + text
	}
	for _, p := range r.Problems {
		severity := "error"
		if p.Warning {
			severity = "warning"
		}
		text += fmt.Sprintf("\n%s:%d:%d: %s: %s", cmp.Or(r.File, r.file), p.Line, p.Column, severity, p.Message)
		if p.Fix != "" {
			text += "\n\tfix: " + p.Fix
		}
	}
	return text
}

// ask sends a body, a value as JSON or bytes as YAML, and decodes the response into out. file names
// the policy in its problems.
func (s *servers) ask(ctx context.Context, method, address string, body any, file string, out any) error {
	contentType, data := "application/json", []byte(nil)
	switch b := body.(type) {
	case nil:
	case []byte:
		contentType, data = "application/yaml", b
	default:
		var err error
		if data, err = json.Marshal(b); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		err = s.failure(req, resp, err)
		var r *refused
		if errors.As(err, &r) {
			r.file = file
		}
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// failure is the error of a request that got no response, or one that is an error. It reads and closes the
// response.
func (s *servers) failure(req *http.Request, resp *http.Response, err error) error {
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("nothing listens there: start weir serve with listen: { %[1]s: %[2]q }, or name the server's address of listen.%[1]s with --%[1]s or $%[3]s", s.at.name(), req.URL.Host, s.at.variable())
		}
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized && s.token == "":
		return fmt.Errorf("the server wants a token: name a file with the token of %s with --token-file FILE or $%s", s.at.tokens(), s.at.tokenVariable())
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("the token in %s is wrong: it is not in %s of the server", s.tokenFile, s.at.tokens())
	}
	r := new(refused)
	if json.Unmarshal(text, r) != nil || r.Detail == "" {
		r.Detail = fmt.Sprintf("it responded %s: is this the address of listen.%s of weir serve?", resp.Status, s.at.name())
	}
	return r
}

// planned is the list of changes that a server reports for a policy.
type planned struct {
	Changes []struct {
		Text string `json:"text"`
	} `json:"changes"`
}

// tell prints one change per line; with several servers, below the server's address.
func (p *planned) tell(cmd *cobra.Command, s *servers, address string) {
	out := cmd.OutOrStdout()
	if len(s.addresses) > 1 {
		fmt.Fprintln(out, address)
	}
	for _, c := range p.Changes {
		fmt.Fprintln(out, c.Text)
	}
	if len(p.Changes) == 0 {
		fmt.Fprintln(out, "nothing changes")
	}
}

// keyParts reads a KEY: its parts, separated by commas, or a JSON array of strings for parts that
// contain commas.
func keyParts(text string) ([]string, error) {
	if !strings.HasPrefix(text, "[") {
		return strings.Split(text, ","), nil
	}
	var parts []string
	if err := json.Unmarshal([]byte(text), &parts); err != nil {
		return nil, &usageError{fmt.Errorf(`%s is not a key: write its parts separated by commas, or as a JSON array of strings, like '["a,b","7"]'`, text)}
	}
	return parts, nil
}
