"""How fast is it, against what others offer and against what the machine can do?"""
