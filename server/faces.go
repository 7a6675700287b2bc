package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/admin"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/gateway"
	"github.com/weirflow/weir/server/httpapi"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/resp"
	"github.com/weirflow/weir/server/rls"
)

// faces are the faces that this server has. They are opened in this order, and shut down in it too:
// operators watch the others end.
func faces() []face.Kind {
	return []face.Kind{
		gateway.Kind(),
		admin.Kind(),
		rls.Kind(),
		resp.Kind(),
		httpapi.Kind(),
	}
}

// Check returns what keeps a policy file from being served, as an error at its place in the file: what
// Serve would refuse. A file without listen is not served, and has nothing to check: it is for replays
// and tests. In a file that is not valid, Check leaves out the lines that already have an error.
func Check(file *policyfile.File) []policyfile.Problem {
	wrong := check(faces(), file)
	if ForServing(file) {
		wrong = append(wrong, active.Check(file)...)
	}
	return slices.DeleteFunc(wrong, func(p policyfile.Problem) bool {
		return slices.ContainsFunc(file.Problems, func(q policyfile.Problem) bool { return !q.Warning && q.Line == p.Line })
	})
}

// Warnings returns what is unwise about a policy file that is served nevertheless, with a warning in the log.
func Warnings(file *policyfile.File) []policyfile.Problem {
	if !ForServing(file) {
		return nil
	}
	return active.Warnings(file)
}

// Expired returns the certificates of the gateway that have expired. They are served nevertheless,
// with an error in the log.
func Expired(file *policyfile.File) []policyfile.Problem { return gateway.Expired(file) }

// EnvoyRules returns how many rules listen.rls.envoy has; ok is false without it.
func EnvoyRules(file *policyfile.File) (n int, ok bool) { return rls.CountRules(file) }

// ForServing reports whether a policy file says where to listen.
func ForServing(file *policyfile.File) bool { return file.Has("listen") }

func check(kinds []face.Kind, file *policyfile.File) (wrong []policyfile.Problem) {
	if !ForServing(file) {
		return nil
	}
	listen := file.Policy.Listen
	named := listen.FaceNames()
	if len(named) == 0 {
		wrong = append(wrong, file.Wrong("listen names no address", "add gateway: 127.0.0.1:8080, or take listen out: replay and test need none", "listen"))
	}
	// a face may name limits that the files of another one have, which checks those files itself
	completed, err := complete(kinds, file)
	if err != nil {
		completed = file
	}
	for _, name := range named {
		i := slices.IndexFunc(kinds, func(k face.Kind) bool { return k.Name == name })
		if i < 0 {
			wrong = append(wrong, file.Wrong(fmt.Sprintf("listen.%s: this version of weir does not serve it", name),
				"take it out; it serves "+names(kinds), "listen", name))
			continue
		}
		switch k := kinds[i]; {
		case k.Check == nil:
		case k.Complete != nil:
			wrong = append(wrong, k.Check(file)...)
		default:
			wrong = append(wrong, k.Check(completed)...)
		}
	}
	return append(wrong, checkAddresses(file)...)
}

// Complete adds to a valid policy the limits that other files have which it names, with warnings about
// them. The error is a *policyfile.InvalidError, or says which file could not be read.
func Complete(file *policyfile.File) (*policyfile.File, error) { return complete(faces(), file) }

func complete(kinds []face.Kind, file *policyfile.File) (*policyfile.File, error) {
	for _, k := range kinds {
		if k.Complete == nil || !file.Has("listen", k.Name) {
			continue
		}
		var err error
		if file, err = k.Complete(file); err != nil {
			return nil, err
		}
	}
	return file, nil
}

func names(kinds []face.Kind) string {
	var all []string
	for _, k := range kinds {
		all = append(all, "listen."+k.Name)
	}
	return strings.Join(all, ", ")
}
