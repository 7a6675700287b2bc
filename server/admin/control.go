package admin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// Control is what the API changes: a running server.
type Control interface {
	// InForce is the policy that is served.
	InForce() InForce
	// Plan says what a policy would change, and changes nothing. No data is the policy file as it is now.
	Plan(data []byte) (Plan, error)
	// Apply puts a policy in force, all or nothing, unless the check, which is given the data of the one in force, has something against it. With
	// save it becomes the policy file, too.
	Apply(ctx context.Context, data []byte, save bool, check func(inForce []byte) error) (Plan, error)
	// Reload reads the policy file again, as SIGHUP does.
	Reload(ctx context.Context) (Plan, error)
	// Engine is the engine in force.
	Engine() *policy.Engine
	// Keep has bans and grants survive a restart, where the policy says where.
	Keep() error
	// Audit writes down what was changed.
	Audit(what string, err error)
}

// InForce is a policy that is served.
type InForce struct {
	File  *policyfile.File
	API   bool // it came from the API, and is not in the file
	Since time.Time
}

// A Plan is what a policy changes, or would.
type Plan struct {
	Changes  []policy.Change
	Warnings []policyfile.Problem
}

// ErrForbidden and ErrConflict are found by errors.Is in what a Control returns: for what it must not do, and for what it cannot do as things are.
var (
	ErrForbidden = errors.New("forbidden")
	ErrConflict  = errors.New("conflict")
)

// tags makes the ETags of policies. They are keyed: what is in a policy cannot be found out by guessing it.
type tags struct{ key [32]byte }

func newTags() *tags {
	t := new(tags)
	_, _ = rand.Read(t.key[:]) // it never fails
	return t
}

func (t *tags) of(data []byte) string {
	m := hmac.New(sha256.New, t.key[:])
	m.Write(data)
	return `"` + hex.EncodeToString(m.Sum(nil)[:16]) + `"`
}
