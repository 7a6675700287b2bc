package policyfile

import (
	"fmt"
	"slices"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/stores"
)

// Elsewhere is limits in a file that is no policy, where the file of Envoy has a descriptor with them.
type Elsewhere struct {
	File   string // for errors
	Data   []byte
	Limits []LimitElsewhere
}

// A LimitElsewhere is one of them. Its parameters are as in limits of a policy file.
type LimitElsewhere struct {
	Name  string
	Key   []string // if it has none of its own
	Value *Value
}

// WithLimits returns the file with limits that others have. Those that it had from others are replaced.
// store is where limits without a store are kept; empty for memory. The error is an *InvalidError, whose
// problems are in the other files.
func (f *File) WithLimits(all []Elsewhere, store string) (*File, error) {
	own := f.withoutElsewhere()
	if len(all) == 0 {
		return own, nil
	}
	var problems []Problem
	for _, e := range all {
		limits, wrong, err := f.elsewhere(e, store)
		if err != nil {
			return nil, err
		}
		own.Policy.Limits, problems = append(own.Policy.Limits, limits...), append(problems, wrong...)
	}
	if slices.ContainsFunc(problems, func(p Problem) bool { return !p.Warning }) {
		return nil, &InvalidError{problems}
	}
	own.Problems = slices.Concat(own.Problems, problems)
	return own, nil
}

// withoutElsewhere returns a copy of the file without the limits of other files.
func (f *File) withoutElsewhere() *File {
	own := *f
	own.Policy.Limits = slices.DeleteFunc(slices.Clone(own.Policy.Limits), func(l policy.Limit) bool { return l.InEnvoy })
	own.Problems = slices.DeleteFunc(slices.Clone(own.Problems), func(p Problem) bool { return p.File != f.Path })
	return &own
}

// Elsewhere returns the limits that other files have.
func (f *File) Elsewhere() (all []policy.Limit) {
	for _, l := range f.Policy.Limits {
		if l.InEnvoy {
			all = append(all, l)
		}
	}
	return all
}

// KeepElsewhere returns the file with the limits that another policy has from other files, for a caller
// who must not learn about files.
func (f *File) KeepElsewhere(from *File) *File {
	own := f.withoutElsewhere()
	own.Policy.Limits = append(own.Policy.Limits, from.Elsewhere()...)
	return own
}

// besidesLimits are the sections of a policy that say what its limits can have.
var besidesLimits = []string{"listen", "stores", "plans", "trusted_proxies", "client_header", "warnings", "snapshot_file"}

// elsewhere reads the limits of one file as if they stood in the policy.
func (f *File) elsewhere(e Elsewhere, store string) ([]policy.Limit, []Problem, error) {
	limits, keys := &node{shape: mapping}, map[string][]string{}
	for _, l := range e.Limits {
		v := l.Value.node
		limits.fields = append(limits.fields, field{name: l.Name, line: v.line, col: v.col, value: v})
		keys[l.Name] = l.Key
	}
	root := &node{shape: mapping, line: 1, col: 1, fields: []field{{name: "limits", line: 1, col: 1, value: limits}}}
	for _, name := range besidesLimits {
		if n := f.root.get(name); n != nil {
			root.fields = append(root.fields, field{name: name, value: n})
		}
	}
	of := &File{Path: e.File, Data: e.Data, Values: f.Values, root: root, only: "limits"}
	err := of.decode(root, func(d *decoder, l *policy.Limit) {
		l.InEnvoy = true
		if len(l.Key) == 0 {
			l.Key = slices.Clone(keys[l.Name])
		}
		if l.Zone != "" {
			d.wrong("a limit in Envoy's files shares no zone", "write the limit under limits of the policy file, and limit: NAME here", "limits", l.Name, "zone")
		}
		if l.Store == "" && l.Limit != nil && !d.spoilt[l.Name] {
			d.keepIn(l, store, f.Policy.Stores)
		}
	})
	return of.Policy.Limits, of.Problems, err
}

// keepIn keeps a limit in a store that it does not name itself.
func (d *decoder) keepIn(l *policy.Limit, store string, all []policy.Store) {
	i := slices.IndexFunc(all, func(s policy.Store) bool { return s.Name == store })
	if i < 0 {
		return
	}
	if err := stores.Keeps(all[i], l.Limit); err != nil {
		why, _ := notKept(&all[i], l.Limit, err)
		d.wrong(fmt.Sprintf("limits in these files are in the store %q of listen.rls: %s", store, why),
			"change its parameters, or write it without a store under limits of the policy file, and limit: NAME here", "limits", l.Name)
		return
	}
	l.Store = store
}
