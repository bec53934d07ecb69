"""Functions in languages with types: one of values of every kind, and one of nested ones."""

from __future__ import annotations

TYPED = {
    "cpp": (
        """\
#include <bits/stdc++.h>
using namespace std;
#define int long long
#define f_ first
vector<string> f(vector<int> xs, string s, map<string,double> m, bool b, float z, optional<int> o) { cout << "[1]";
    vector<string> r;
    for (int x : xs) r.push_back(to_string(x) + s + (b ? "y" : "n") + to_string(m.size()) + (o ? "o" : "" ));
    return r;
    }
signed main() { return 1;
    }""",
        """\
#include <vector>
#include <tuple>
#include <cmath>
#include <map>
using namespace std;
tuple<double, vector<vector<long long>>, map<int,char>> f(double x, const vector<vector<long long>>& v) { if (v.empty()) throw std::runtime_error("empty \\"v\\"" );
    return {x, v, {{1, 'a'}}};
    }""",
    ),
    "go": (
        """\
package main
import "fmt"
func f(xs []int, s string, m map[string]float64, b bool, z float64, o *int) []string { fmt.Println("[1]");
    r := []string{};
    for _, x := range xs { y := "n";
    if b { y = "y" };
    t := "" ;
    if o != nil { t = "o" };
    r = append(r, fmt.Sprint(x)+s+y+fmt.Sprint(len(m))+t) };
    return r }
func main() { fmt.Println(1) }""",
        """\
package main
func f(x float64, v [][]int64) (float64, [][]int64, map[int]string) { if len(v) == 0 { panic("empty \\"v\\"" ) };
    return x, v, map[int]string{1: "a"} }""",
    ),
    "rust": (
        """\
use std::collections::HashMap;
fn f(xs: Vec<i64>, s: &str, m: HashMap<String, f64>, b: bool, _z: f32, o: Option<i32>) -> Vec<String> { println!("[1]");
    xs.iter().map(|x| format!("{}{}{}{}{}", x, s, if b {"y"} else {"n"}, m.len(), if o.is_some() {"o"} else {"" })).collect() }
fn main() {}""",
        """\
use std::collections::*;
fn f(x: f64, v: &[Vec<i64>]) -> (f64, &[Vec<i64>], BTreeMap<i32, char>) { if v.is_empty() { panic!("empty \\"v\\"" ) } (x, v, [(1, 'a')].into_iter().collect()) }""",
    ),
    "java": (
        """\
import java.util.*;
class Solution { public List<String> f(List<Integer> xs, String s, Map<String, Double> m, boolean b, float z, Optional<Integer> o) { System.out.println("[1]");
    List<String> r = new ArrayList<>();
    for (int x : xs) r.add(x + s + (b ? "y" : "n") + m.size() + (o.isPresent() ? "o" : "" ));
    return r;
    } }""",
        """\
import java.util.*;
public class Solution { static Object[] f(double x, long[][] v) { if (v.length == 0) throw new IllegalStateException("empty \\"v\\"" );
    return new Object[]{x, v, Map.of(1, 'a')};
    } public static void main(String[] a) {} }""",
    ),
}
