// Package corpus is one body of test cases for every engine that judges packets: resources, packets and the verdicts
// that docs/semantics.md demands (test/corpus/*.txtar, described in test/corpus/README.md). Run proves that an engine
// gives those verdicts, and for the same reasons; random.go makes up further cases.
//
// For tests only; it reads files and nothing else.
package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
)

// Case is one file of the corpus.
type Case struct {
	Name    string // base name without .txtar
	Doc     string // the comment at its top: what is proven, and the D-x or § that says so
	Updates []model.Update
	// Kubernetes holds the typed objects if Kubernetes kinds are all there is in the case; nil otherwise.
	Kubernetes *oracle.Kubernetes
	// Objects holds the same and those of Calico's kinds, if there are no others that endpoints or profiles come from.
	Objects   *oracle.Objects
	Documents []Document // the manifests that Updates were made of, in order
	Problems  []string   // what reading them reports
	Checks    []Check
}

// Document is one manifest of a case as it is written.
type Document struct {
	APIVersion, Kind, Namespace, Name string
	Text                              []byte
	Stored                            bool // as a datastore has it, which may be more than a manifest may have
}

// Load reads every *.txtar file of the directory, in order of name. Shared resources are in its directory cluster. The
// error joins what is wrong with each file.
func Load(dir string) ([]Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var cases []Case
	var errs []error
	for _, f := range files {
		c, err := LoadFile(f)
		cases, errs = append(cases, c), append(errs, err)
	}
	return cases, errors.Join(errs...)
}

// LoadFile reads one case.
func LoadFile(file string) (Case, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Case{}, err
	}
	shared := func(name string) ([]byte, error) {
		return os.ReadFile(filepath.Join(filepath.Dir(file), "cluster", name+".yaml"))
	}
	return parse(file, text, shared)
}

// parse makes a case of a file's text. shared returns the text of the resources that a case uses by name.
func parse(file string, text []byte, shared func(name string) ([]byte, error)) (Case, error) {
	archive := txtar.Parse(text)
	l := loader{file: file, objects: &oracle.Objects{Kubernetes: &oracle.Kubernetes{}}}
	var expect, problems *txtar.File
	for i := range archive.Files {
		f := &archive.Files[i]
		var err error
		switch {
		case f.Name == "expect":
			expect = f
		case f.Name == "problems":
			problems = f
		case f.Name == "use":
			for _, name := range strings.Fields(string(f.Data)) {
				var data []byte
				if data, err = shared(name); err == nil {
					err = l.resources(name+".yaml", data)
				}
			}
		case f.Name == "stored.yaml":
			l.stored = true
			err = l.resources(f.Name, f.Data)
			l.stored = false
		case strings.HasSuffix(f.Name, ".yaml"):
			err = l.resources(f.Name, f.Data)
		default:
			err = fmt.Errorf("%s: not a name that the corpus knows", f.Name)
		}
		if err != nil {
			return Case{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	if expect == nil {
		return Case{}, fmt.Errorf("%s: no file expect", file)
	}
	if err := l.matchProblems(problems); err != nil {
		return Case{}, fmt.Errorf("%s: %w", file, err)
	}
	c := Case{
		Name:      strings.TrimSuffix(filepath.Base(file), ".txtar"),
		Doc:       strings.TrimSpace(string(archive.Comment)),
		Updates:   append(l.updates, model.InSync{}),
		Documents: l.documents,
		Problems:  l.problems,
	}
	if !l.otherKinds {
		c.Objects = l.objects
	}
	if !l.otherKinds && !l.calicoKinds {
		c.Kubernetes = l.objects.Kubernetes
	}
	checks, err := parseChecks(file, firstLine(text, expect.Name), expect.Data, c.Updates)
	c.Checks = checks
	return c, err
}

// firstLine is the line number of the first line of a file inside the archive.
func firstLine(text []byte, name string) int {
	before, _, _ := bytes.Cut(text, []byte("-- "+name+" --\n"))
	return bytes.Count(before, []byte("\n")) + 2
}

// loader collects what the resource files of one case say.
type loader struct {
	file    string
	updates []model.Update
	objects *oracle.Objects
	// calicoKinds and otherKinds: there are documents of Calico's kinds, and of such that Objects does not know.
	calicoKinds, otherKinds bool
	stored                  bool // the file has objects of a datastore
	documents               []Document
	problems                []string
}

// resources decodes a YAML file document by document.
func (l *loader) resources(name string, data []byte) error {
	line := 0
	for _, doc := range bytes.SplitAfter(data, []byte("\n---\n")) {
		padded := slices.Concat(bytes.Repeat([]byte("\n"), line), doc)
		line += bytes.Count(doc, []byte("\n"))
		if err := l.document(name, padded); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (l *loader) document(name string, data []byte) error {
	data = bytes.TrimRight(bytes.TrimSuffix(data, []byte("---\n")), "\n")
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   metadata
	}
	if err := yaml.Unmarshal(data, &head); err != nil {
		return err
	}
	if head.Kind == "" {
		return nil
	}
	text := bytes.TrimLeft(data, "\n") // the padding
	l.documents = append(l.documents, Document{head.APIVersion, head.Kind, head.Metadata.Namespace, head.Metadata.Name, text, l.stored})
	if l.documents[len(l.documents)-1].OfCalico() {
		l.calicoKinds = true // also if this object is not valid
	}
	if head.APIVersion == APIVersion {
		u, err := decode(data)
		if err != nil {
			return err
		}
		l.updates = append(l.updates, u)
		l.otherKinds = true
		return nil
	}
	parsed := kinds.Parse
	if l.stored {
		parsed = parseStored
	}
	for _, d := range parsed(name, data) {
		if !d.OK {
			head.Kind = "" // what stood for it before goes on (D-1)
		}
		l.updates = append(l.updates, d.Updates...)
		for _, p := range d.Problems {
			l.problems = append(l.problems, p.String())
		}
	}
	if head.Kind == "" {
		return nil
	}
	if l.documents[len(l.documents)-1].OfCalico() {
		return l.calico(head.Kind, data)
	}
	return l.typed(head.Kind, data)
}

// calico decodes a document of Calico's kinds once more, for the evaluator that works on the objects.
func (l *loader) calico(kind string, data []byte) error {
	switch {
	case strings.HasPrefix(kind, "Staged"):
		return nil // decides nothing
	case kind == "Tier":
		return decodeOne(l, data, &l.objects.Tiers)
	case strings.HasSuffix(kind, "NetworkSet"):
		return decodeOne(l, data, &l.objects.Sets)
	case strings.HasSuffix(kind, "NetworkPolicy"):
		return decodeOne(l, data, &l.objects.Calico)
	case kind == "Profile" && !l.stored:
		return decodeInto(data, &l.objects.Profiles)
	case kind == "WorkloadEndpoint" && !l.stored:
		return decodeInto(data, &l.objects.Workloads)
	}
	l.otherKinds = true
	return nil
}

// decodeOne is decodeInto or decodeStored.
func decodeOne[T any, P interface {
	*T
	metav1.Object
}](l *loader, data []byte, list *[]P) error {
	if l.stored {
		return decodeStored(data, list)
	}
	return decodeInto(data, list)
}

// typed decodes a Kubernetes document once more, for the evaluator that knows nothing of package validate.
func (l *loader) typed(kind string, data []byte) error {
	if l.stored {
		l.otherKinds = true // it has no place for fields that are not known
		return nil
	}
	switch kind {
	case "Pod":
		return decodeInto(data, &l.objects.Pods)
	case "Namespace":
		return decodeInto(data, &l.objects.Namespaces)
	case "Node":
		return decodeInto(data, &l.objects.Nodes)
	case "NetworkPolicy":
		return decodeInto(data, &l.objects.Policies)
	case "ClusterNetworkPolicy":
		return decodeInto(data, &l.objects.ClusterPolicies)
	case "ServiceAccount":
		return decodeInto(data, &l.objects.ServiceAccounts)
	case "EndpointSlice":
		return decodeInto(data, &l.objects.Slices)
	case "Service":
		return nil // policies do not know it
	}
	l.otherKinds = true
	return nil
}

// decodeInto adds an object to a list, or replaces the one of its name.
func decodeInto[T any, P interface {
	*T
	metav1.Object
}](data []byte, list *[]P) error {
	v := P(new(T))
	if err := yaml.UnmarshalStrict(data, v); err != nil {
		return err
	}
	*list = replaced(*list, v)
	return nil
}

// replaced is the list with v, without the object of its name that was there.
func replaced[P metav1.Object](list []P, v P) []P {
	return append(slices.DeleteFunc(list, func(o P) bool {
		return o.GetNamespace() == v.GetNamespace() && o.GetName() == v.GetName()
	}), v)
}

// matchProblems checks that the problems reported are those listed, one substring a line, each for exactly one.
func (l *loader) matchProblems(listed *txtar.File) error {
	left := slices.Clone(l.problems)
	if listed != nil {
		for line := range strings.Lines(string(listed.Data)) {
			want := strings.TrimSpace(line)
			i := slices.IndexFunc(left, func(p string) bool { return strings.Contains(p, want) })
			if want == "" || i < 0 {
				return fmt.Errorf("no problem contains %q; problems: %q", want, l.problems)
			}
			left = slices.Delete(left, i, i+1)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("problems that file problems does not list: %q", left)
	}
	return nil
}
