// What tests in Go use of testing and testify; the program is beside it.
package main

type tester struct{}

func (t *tester) Run(_ string, test func(*tester)) { test(t) }

func (*tester) Errorf(why string, parts ...interface{}) { panic(fmt.Sprintf(why, parts...)) }

type assertions struct{}

func (assertions) New(*tester) assertions { return assertions{} }

func (assertions) Equal(want, got interface{}, _ ...interface{}) {
	if !reflect.DeepEqual(want, got) {
		panic(fmt.Sprintf("%v, not %v", got, want))
	}
}

var assert assertions
